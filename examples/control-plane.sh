#!/bin/sh
# Lets the kube-scheduler of this machine call the extender, or undoes that. As root, on each node of the control plane:
#
#   sh control-plane.sh kubeadm install    # or: k3s install; run it again after a change of certificates or values
#   sh control-plane.sh kubeadm undo
#
# NAMESPACE and NAME are those of the release. The certificates come from the Secret NAME-caller, which `extender certs` or
# cert-manager has made.
set -eu
umask 077
: "${NAMESPACE:=extender-system}" "${NAME:=extender}" "${ROOT:=}"

fail() {
    echo "control-plane.sh: $*" >&2
    exit 1
}

get() { # kind, name, JSONPath
    kubectl --namespace "$NAMESPACE" get "$1" "$2" --output "jsonpath=$3"
}

write_certificates() { # kube-scheduler does not start if one of them is missing
    mkdir -p "$ROOT$folder/tls"
    for file in tls.crt tls.key ca.crt; do
        get secret "$NAME-caller" "{.data.$(echo "$file" | sed 's/\./\\./')}" | base64 -d > "$ROOT$folder/tls/$file.new"
        [ -s "$ROOT$folder/tls/$file.new" ] || fail "the Secret $NAMESPACE/$NAME-caller has no $file"
    done
    for file in tls.crt tls.key ca.crt; do
        mv "$ROOT$folder/tls/$file.new" "$ROOT$folder/tls/$file"
    done
}

write_configuration() { # with the Service's address, because a node cannot resolve its name
    address=$(get service "$NAME" '{.spec.clusterIP}')
    case $address in
    *:*) address="[$address]" ;;
    esac
    new=$ROOT$folder/kube-scheduler.yaml.new
    get configmap "$NAME-kube-scheduler" '{.data.kube-scheduler\.yaml}' |
        sed -e "s|//$NAME\.$NAMESPACE\.svc:|//$address:|" -e "s|/etc/extender/tls|$folder/tls|" > "$new"
    grep -q "//$address:" "$new" || fail "the ConfigMap $NAMESPACE/$NAME-kube-scheduler has no urlPrefix of this Service"
    if ! grep -q '^  kubeconfig:' "$new"; then
        grep -q '^clientConnection:' "$new" || echo 'clientConnection:' >> "$new"
        sed -i "s|^clientConnection:|&\n  kubeconfig: $kubeconfig|" "$new"
    fi
    mv "$new" "$ROOT$folder/kube-scheduler.yaml"
}

kubeadm_install() { # the kubelet restarts kube-scheduler when its manifest changes, so a label has the files' checksum
    manifest=$ROOT/etc/kubernetes/manifests/kube-scheduler.yaml
    before=$ROOT$folder/kube-scheduler.before # not beside the manifest: the kubelet reads every file there
    if [ ! -f "$before" ]; then
        ! grep -q -e '- --config=' "$manifest" || fail "$manifest has a --config already; add the entry to that file"
        cp "$manifest" "$before"
    fi
    sum=$(cat "$ROOT$folder/kube-scheduler.yaml" "$ROOT$folder"/tls/* | sha256sum | cut -c 1-16)
    sed -e "s|- --kubeconfig=.*|- --config=$folder/kube-scheduler.yaml|" -e '/- --leader-elect=/d' \
        -e "s|^  labels:|&\n    extender/files: \"$sum\"|" \
        -e "s|^    volumeMounts:|&\n    - {name: extender, mountPath: $folder, readOnly: true}|" \
        -e "s|^  volumes:|&\n  - {name: extender, hostPath: {path: $folder, type: Directory}}|" "$before" > "$before.new"
    [ "$(grep -c -e "$folder" -e "$sum" "$before.new")" = 4 ] || fail "$manifest is not as kubeadm writes it"
    mv "$before.new" "$manifest"
}

kubeadm_undo() {
    mv "$ROOT$folder/kube-scheduler.before" "$ROOT/etc/kubernetes/manifests/kube-scheduler.yaml"
}

k3s_install() {
    mkdir -p "$ROOT/etc/rancher/k3s/config.yaml.d"
    echo "kube-scheduler-arg+: [\"config=$folder/kube-scheduler.yaml\"]" > "$ROOT/etc/rancher/k3s/config.yaml.d/extender.yaml"
    systemctl restart k3s
}

k3s_undo() {
    rm "$ROOT/etc/rancher/k3s/config.yaml.d/extender.yaml"
    systemctl restart k3s
}

case ${1:-} in
kubeadm)
    folder=/etc/kubernetes/extender
    kubeconfig=/etc/kubernetes/scheduler.conf
    : "${KUBECONFIG:=/etc/kubernetes/admin.conf}"
    ;;
k3s)
    folder=/etc/rancher/k3s/extender
    kubeconfig=/var/lib/rancher/k3s/server/cred/scheduler.kubeconfig
    : "${KUBECONFIG:=/etc/rancher/k3s/k3s.yaml}"
    ;;
*) fail "expected kubeadm or k3s, then install or undo" ;;
esac
export KUBECONFIG

case ${2:-} in
install)
    write_certificates
    write_configuration
    "$1_install"
    ;;
undo)
    "$1_undo"
    rm -r "$ROOT$folder"
    ;;
*) fail "expected install or undo after $1" ;;
esac
