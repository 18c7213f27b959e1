#!/bin/sh
# Before a removal; nothing happens before an upgrade. Debian passes "remove" or "upgrade"; Red Hat passes
# the number of versions that remain. If something fails, the package stays: without the binary nobody could
# put back the daemon's changes to the system.
set -eu

case "${1:-}" in
  remove|0) ;;
  *) exit 0 ;;
esac

# With DPKG_ROOT the package is in a folder, not on the running system.
if [ -z "${DPKG_ROOT:-}" ]; then
  if [ -d /run/systemd/system ]; then
    systemctl disable --now penstock-node penstock-broker
  fi
  # A daemon that stops puts back its changes. The command puts back the changes of a daemon that was killed.
  if [ -f /etc/penstock/node.yaml ]; then
    set -- --config /etc/penstock/node.yaml
  else
    set -- --journal /run/penstock/control.journal
  fi
  if ! /opt/penstock/penstock node put-back "$@"; then
    echo "penstock: the package stays, so that the changes to the system can be put back." >&2
    echo "penstock: remove the cause above, or restart the machine, which ends the changes; then remove the package again." >&2
    exit 1
  fi
fi
echo "penstock: JVMs whose options still name /opt/penstock/penstock-agent.jar do not start without it."
echo "penstock: if \`penstock install --remove\` has not been run, remove these options before the next restart."
