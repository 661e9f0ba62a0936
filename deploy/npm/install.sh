#!/bin/bash
# Installs each package of the folder agents by apm, in the order of their names, and restarts cn-agent, which then
# counts the node's agents. A package that fails does not keep the others away; the exit status says so. HUB_ROOT is the
# root of an imitated node.
set -uo pipefail
cd "$(dirname "$0")" || exit 1
apm=${HUB_ROOT:-}/opt/smartdc/agents/bin/apm
[ -x "$apm" ] || { echo "$apm is missing: this is no node with Triton's agents" >&2; exit 1; }
failed=()
for file in agents/*.tgz; do
  "$apm" install "$file" || failed+=("$(basename "$file")")
done
svcadm restart svc:/smartdc/agent/cn-agent:default || failed+=('the restart of cn-agent')
[ "${#failed[@]}" -eq 0 ] || { printf 'failed: %s\n' "${failed[@]}" >&2; exit 1; }
