#!/bin/bash
# Installs the agents that are packed behind the last line of this script, as an agents shar does.
set -euo pipefail
self=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/agents-XXXXXX")
trap 'rm -rf "$dir"' EXIT
cd "$dir"
lines=$(sed -n '/^exit #/{=;q;}' "$self")
tail -n "+$((lines + 1))" "$self" | tar xf -
bash ./install.sh
exit # a tar follows
