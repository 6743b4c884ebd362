#!/usr/bin/env bash
# Checks every arrangement of three neighbours under every call that can merge. All cases take minutes;
# the tests, and this script with --share, run a part of them.
# usage: ci/run enumeration [--share]
. "$(dirname "$0")/../lib/prepare.sh"

case ${1---all} in
--all) export VMAREA_ENUMERATION=all ;;
--share) unset VMAREA_ENUMERATION ;;
*) fail "unknown argument '$1': --share, or nothing" 2 ;;
esac
cargo test --release --locked -p vmarea --test enumeration -- --nocapture
