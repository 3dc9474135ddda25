#!/usr/bin/env bash
# A browser for the tests of the report's page, where one can be had: Debian's Chromium and its driver. Never fails;
# without a browser those tests skip, and say so.
set -u
have() { command -v chromium >/dev/null && command -v chromedriver >/dev/null; }
have && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    timeout 300 apt-get update -qq >/dev/null 2>&1
    timeout 600 apt-get install -y -qq --no-install-recommends chromium chromium-driver fonts-dejavu-core >/dev/null 2>&1
fi
have || echo "No browser here: the tests of the report's page skip. With rights: apt-get install chromium chromium-driver"
exit 0
