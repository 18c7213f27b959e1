#!/bin/sh
# After a removal. Debian passes "purge" if settings and state are to go, too. Files in /etc/penstock that
# the package did not bring (weights, certificates, keys) and a broker's policy store are the operator's.
set -eu

if [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then
  systemctl daemon-reload || true
fi
if [ "${1:-}" = purge ]; then
  rm -rf "${DPKG_ROOT:-}/run/penstock"
fi
