#!/bin/sh
# After a removal. Debian passes "purge" to remove settings and state, too. Files in /etc/penstock that are not from
# the package (weights, certificates, keys), a broker's policy store and the broker's user stay.
set -eu

if [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then
  systemctl daemon-reload || true
fi
if [ "${1:-}" = purge ]; then
  folder="${DPKG_ROOT:-}/run/penstock"
  if grep -qs '"change"' "$folder/control.journal"; then
    echo "penstock: $folder/control.journal records changes to the system that may be in force, so $folder stays."
    echo "penstock: restart the machine, which ends the changes and removes the folder, or install the package again and run"
    echo "penstock:   penstock node put-back --journal $folder/control.journal"
  else
    rm -rf "$folder"
  fi
fi
