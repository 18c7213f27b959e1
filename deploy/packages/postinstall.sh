#!/bin/sh
# After an installation or an upgrade. Debian passes "configure" and the former version, if any; Red Hat
# passes the number of installed versions. No service is started or restarted: a restart opens all gates
# for a moment, and agents of another release may stay ungoverned. So the operator chooses the time.
set -eu

upgrade=no
case "${1:-}" in
  configure) [ -z "${2:-}" ] || upgrade=yes ;;
  1) ;;
  [2-9]*) upgrade=yes ;;
  *) exit 0 ;; # dpkg takes back a removal that failed
esac

# With DPKG_ROOT the package is in a folder; systemd makes the user and the folder when that system starts.
if [ -z "${DPKG_ROOT:-}" ]; then
  if command -v systemd-sysusers >/dev/null; then
    systemd-sysusers penstock.conf || echo "penstock: the broker's user \"penstock\" could not be made; the node daemon does not need it"
  fi
  if command -v systemd-tmpfiles >/dev/null; then
    systemd-tmpfiles --create penstock.conf || true # the daemon's unit makes the folder, too
  fi
fi

running=no
if [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then
  systemctl daemon-reload || true
  if systemctl is-active --quiet penstock-node; then
    running=yes
  fi
fi

if [ "$upgrade" = no ]; then
  echo "penstock: edit /etc/penstock/node.yaml, then: systemctl enable --now penstock-node"
  echo "penstock: on a broker's machine, edit /etc/penstock/broker.env, then: systemctl enable --now penstock-broker"
elif [ "$running" = yes ]; then
  echo "penstock: the former release of the daemon is still running, and governs as before."
  echo "penstock: a JVM that starts from now on has the new agent, which the former daemon may not serve."
  echo "penstock: So restart the daemon, and later the DataNode and the NodeManager: systemctl restart penstock-node"
fi
