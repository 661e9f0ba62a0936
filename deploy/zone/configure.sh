#!/bin/bash
# Runs at every boot of a zone of ours, and in setup.sh: mounts the delegated dataset, if the boot has not.
set -o errexit -o nounset -o pipefail
export PATH=/opt/local/bin:/opt/local/sbin:/usr/bin:/usr/sbin:/bin

program=$(sed -n 's/^program=//p' /opt/smartdc/boot/zone.conf)
dataset=zones/$(zonename)/data
[ "$(zfs get -H -o value mounted "$dataset")" = yes ] || zfs mount "$dataset"
mkdir -p "/data/$program"
chmod 0700 "/data/$program"
