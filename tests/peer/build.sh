#!/bin/sh
# Builds the live peer for one RocketMQ version and prints the directory that holds classes/ and lib/.
# Usage: build.sh [VERSION]. Quick when built before; two builds at once wait for each other.
set -eu

version="${1:-5.5.0}"
here="$(cd "$(dirname "$0")" && pwd)"
cache="${ROCKSTRATA_PEER_CACHE:-$HOME/.cache/rockstrata/peer}"

digest() { sha256sum | cut -c1-12; }
pom_hash="$(digest < "$here/java/pom.xml")"
hash="$(cd "$here/java" && find pom.xml src -type f | LC_ALL=C sort | xargs sha256sum | digest)"
built="$cache/$version-$hash"
lib="$cache/lib-$version-$pom_hash"

if [ ! -d "$built" ]; then
    mkdir -p "$cache"
    # Maven's local repository is shared by all versions, so there is one lock for all.
    exec 9> "$cache/.lock"
    flock 9
    if [ ! -d "$built" ]; then
        work="$cache/.work-$$"
        trap 'rm -rf "$work"' EXIT
        mkdir -p "$work"
        goals=compile
        [ -d "$lib" ] || goals="compile dependency:copy-dependencies"
        # shellcheck disable=SC2086
        mvn -q -B -f "$here/java/pom.xml" "-Drocketmq.version=$version" "-Dpeer.target=$work" \
            -DincludeScope=runtime "-DoutputDirectory=$work/lib" $goals >&2
        [ -d "$lib" ] || mv "$work/lib" "$lib"
        mkdir "$work/whole"
        mv "$work/classes" "$work/whole/classes"
        ln -s "../$(basename "$lib")" "$work/whole/lib"
        # The rename comes last: a directory under the final name is a complete one.
        mv "$work/whole" "$built"
    fi
fi
echo "$built"
