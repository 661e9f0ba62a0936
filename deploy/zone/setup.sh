#!/bin/bash
# Sets up a zone of ours: the user-script runs this once for each root, so again after every reprovision. What must stay
# is in the delegated dataset, mounted at /data; nothing here makes anew what is there already.
set -o errexit -o nounset -o pipefail
export PATH=/opt/local/bin:/opt/local/sbin:/usr/bin:/usr/sbin:/bin

# Names of our own: what is sourced below has its own variables.
hub_boot=/opt/smartdc/boot
hub_program=$(sed -n 's/^program=//p' "$hub_boot/zone.conf")
hub_metric_ports=$(sed -n 's/^metric_ports=//p' "$hub_boot/zone.conf")
hub_folder=/opt/smartdc/$hub_program

refuse() {
    echo "setup of $hub_program refused: $1" >&2
    exit 1
}

# What the builder of the image did not give.
for input in "SDC_SCRIPTS $hub_boot/lib/util.sh" "CONFIG_AGENT /opt/smartdc/config-agent"; do
    [ -e "${input#* }" ] || refuse "the image was built without ${input%% *} (${input#* } is not there)"
done
if [ "$hub_program" = feed ] && [ ! -x "$hub_folder/bin/nats-server" ]; then
    refuse "the image was built without NATS_SERVER ($hub_folder/bin/nats-server is not there)"
fi

hub_dataset=zones/$(zonename)/data
zfs list -H -o name "$hub_dataset" >/dev/null 2>&1 ||
    refuse "the zone has no delegated dataset $hub_dataset, and loses what it keeps at each update: see hub setup"
[ "$(zfs get -H -o value mountpoint "$hub_dataset")" = /data ] || zfs set mountpoint=/data "$hub_dataset"
"$hub_boot/configure.sh"

# config-agent, which sdc_common_setup runs, writes into these.
mkdir -p "$hub_folder/etc" /opt/smartdc/agents/etc

# shellcheck disable=SC2034 # read by sdc_common_setup
CONFIG_AGENT_LOCAL_MANIFESTS_DIRS=$hub_folder
# shellcheck source=/dev/null
source "$hub_boot/lib/util.sh"
sdc_common_setup

svccfg import "$hub_folder/smf/manifests/$hub_program.xml"
# The first time an operator enables the service; afterwards the instance is marked as in use.
if grep -Eqs 'data_in_use"?: "[^"]' \
    "$hub_folder/etc/config.json" "$hub_folder/etc/$hub_program.json" "/data/$hub_program/nats.conf"; then
    svcadm enable "svc:/smartdc/site/$hub_program:default"
fi

sdc_log_rotation_add config-agent '/var/svc/log/*config-agent*.log' 1g
sdc_log_rotation_add registrar '/var/svc/log/*registrar*.log' 1g
sdc_log_rotation_add "$hub_program" "/var/svc/log/*$hub_program*.log" 1g
sdc_log_rotation_setup_end

if [ -n "$hub_metric_ports" ]; then mdata-put metricPorts "$hub_metric_ports"; fi
hub_path="export PATH=\$PATH:/opt/smartdc/bin:$hub_folder/bin"
grep -qsxF "$hub_path" /root/.profile || echo "$hub_path" >>/root/.profile

sdc_setup_complete
