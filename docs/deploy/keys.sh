#!/bin/sh
# Makes the keys of a cluster in a directory, and the files that name them; what is there already stays as it is.
#
#     keys.sh DIRECTORY "proxy p1 tcp://host:5601" "server s1 s1" "server s1 s1b" "client * gateway"
#
# A proxy comes with the address where others reach it, a server's member and a client with the name of their key file. A
# client may do everything: leave it out, and use `pubsub keys`, for one that may not. One bearer token for the gateway,
# that of the user admin, is made too, into the file admin.token. Run it as the user that the processes run as.
set -euf
directory=$1
shift
umask 077
mkdir -p "$directory"
cd "$directory"
export PUBSUB_AUTHORIZED="$PWD/authorized"

# role id name: where a run is cut short, only a line whose key nobody has is left behind.
make_key() {
    [ ! -e "$3.key" ] || return 0
    rm -f "$3.new"
    public=$(pubsub keys new "$1" "$3" --out "$PWD/$3.new" | awk '{ print $3 }')
    if [ "$1" = client ]; then
        pubsub keys authorize client "$2" "$public" --put '*' --get '*' --status --operate
    else
        pubsub keys authorize "$1" "$2" "$public"
    fi
    mv "$3.new" "$3.key"
}

# id address: the newest key of that proxy
name_proxy() {
    touch proxies
    grep -q "^$2 " proxies ||
        awk -v id="$1" -v address="$2" '$1 == "proxy" && $2 == id { key = $3 } END { print address, key }' authorized >>proxies
}

for one; do
    set -- $one
    if [ "$1" = proxy ]; then
        make_key proxy "$2" "$2"
        name_proxy "$2" "$3"
    else
        make_key "$1" "$2" "$3"
    fi
done
if [ ! -e tokens ]; then
    pubsub gateway token admin >admin.new
    head -n 1 admin.new >admin.token
    sed -n 's/$/ status operate/; 2p' admin.new >tokens.new
    rm admin.new
    mv tokens.new tokens
fi
