#!/bin/sh
# Before a removal; nothing happens before an upgrade. Debian passes "remove" or "upgrade"; Red Hat passes
# the number of versions that remain. The daemon puts back its changes to the system when it stops.
set -eu

case "${1:-}" in
  remove|0) ;;
  *) exit 0 ;;
esac

if [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then
  # If systemctl fails, the package stays: without the binary nobody could put the changes back.
  systemctl disable --now penstock-node
fi
echo "penstock: JVMs whose options still name /opt/penstock/penstock-agent.jar do not start without it."
echo "penstock: if \`penstock install --remove\` has not been run, remove these options before the next restart."
