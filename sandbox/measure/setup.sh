#!/usr/bin/env bash
# Nothing of its own: it runs on Python's standard library, and its tests on the AWS part's pytest.
exec "$(dirname "${BASH_SOURCE[0]}")/../aws/setup.sh"
