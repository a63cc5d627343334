//! Volumes of pods, PersistentVolumes, and claims.
mod projected;

use super::environment;
use crate::kind::at::At;
use crate::kind::{format, resources};
use serde_json::{Value, json};
use setpoint_object::{field, name};
use std::collections::{HashMap, HashSet};

/// Sources of a pod's volumes, in the order in which the API looks at them: the first one counts.
const OF_PODS: [&str; 30] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];
/// Sources of PersistentVolumes, in the same order.
const OF_CLUSTER: [&str; 22] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

/// Validates the volumes of a pod. Returns those without faults, and whether each is a claim.
pub(super) fn volumes<'v>(spec: &At<'v, '_>, pod_name: Option<&str>) -> HashMap<&'v str, bool> {
    let mut names: HashMap<&str, bool> = HashMap::new();
    let ephemeral: HashSet<String> = match pod_name {
        None => HashSet::new(),
        Some(pod) => spec
            .each("volumes")
            .filter(|volume| volume.has("ephemeral"))
            .map(|volume| format!("{pod}-{}", volume.text_of("name")))
            .collect(),
    };
    for volume in spec.each("volumes") {
        let before = volume.n_errors();
        let name = volume.get("name");
        let found = source(&volume, &OF_PODS, Owner::Pod(pod_name));
        let has_claim = found == Some("ephemeral") && !name.text().is_empty();
        if let Some(pod) = pod_name.filter(|pod| !pod.is_empty() && has_claim) {
            let claim = format!("{pod}-{}", name.text());
            for fault in name::dns1123_subdomain(&claim) {
                name.invalid(format!("PVC name \"{claim}\": {fault}"));
            }
        }
        name.named(name::dns1123_label);
        if names.contains_key(name.text()) {
            name.duplicate();
        }
        if volume.n_errors() == before {
            let is_claim = volume.has("persistentVolumeClaim") || volume.has("ephemeral");
            names.insert(name.text(), is_claim);
        }
        let claim = volume.get("persistentVolumeClaim.claimName");
        if ephemeral.contains(claim.text()) {
            claim.invalid("must not reference a PVC that gets created for an ephemeral volume");
        }
    }
    names
}

/// Validates the source of a PersistentVolume.
pub(in crate::kind) fn persistent_source(at: &At<'_, '_>, volume_name: &str) {
    source(at, &OF_CLUSTER, Owner::Cluster(volume_name));
}

/// Whose volume it is.
#[derive(Clone, Copy)]
enum Owner<'a> {
    /// A pod's, with its name, or a template's.
    Pod(Option<&'a str>),
    /// A PersistentVolume's, with its name.
    Cluster(&'a str),
}
impl Owner<'_> {
    fn is_cluster(self) -> bool {
        matches!(self, Self::Cluster(_))
    }
}

/// Exactly one source, with what it needs. Returns the last one that counts.
fn source<'n>(at: &At<'_, '_>, sources: &[&'n str], owner: Owner<'_>) -> Option<&'n str> {
    // A volume has few members.
    let members = at.value.as_object().into_iter().flatten().map(|(member, _)| member);
    let places = members.filter_map(|member| sources.iter().position(|name| name == member));
    let mut places: Vec<_> = places.collect();
    places.sort_unstable();
    let mut found = None;
    for name in places.into_iter().map(|place| &sources[place]) {
        let Some(source) = at.given(name) else { continue };
        // The API counts this one of a cluster, and never refuses it.
        let counts_only = owner.is_cluster() && *name == "flexVolume";
        if found.is_some() && !counts_only {
            // As the API spells them here.
            let shown = match *name {
                "cephfs" => "cephFS",
                "downwardAPI" => "downwarAPI",
                name => name,
            };
            at.get(shown).forbidden("may not specify more than 1 volume type");
        } else {
            found = Some(*name);
            let shown = if *name == "gcePersistentDisk" { "persistentDisk" } else { name };
            one_source(&at.shown_as(shown, source.value), name, owner);
            if owner.is_cluster() && *name == "local" && !at.has("nodeAffinity") {
                at.get("nodeAffinity").required("Local volume requires node affinity");
            }
        }
        // Also of one too many.
        let of_pod = at.get("name");
        if *name == "iscsi" && !owner.is_cluster() && is_long_portal(&source, of_pod.text()) {
            of_pod.invalid(LONG_PORTAL);
        }
    }
    if found.is_none() {
        at.required("must specify a volume type");
    }
    found
}

fn need(at: &At<'_, '_>, members: &[&str]) {
    for member in members {
        at.get(member).need();
    }
}
fn one_source(at: &At<'_, '_>, name: &str, owner: Owner<'_>) {
    match name {
        "emptyDir" => {
            let limit = at.get("sizeLimit");
            if limit.text().starts_with('-') {
                limit.forbidden("SizeLimit field must be a valid resource quantity");
            }
        }
        "hostPath" => {
            let path = at.get("path");
            if path.need() {
                format::no_backsteps(&path, path.text());
                at.get("type").one_of_if_set(&[
                    "",
                    "BlockDevice",
                    "CharDevice",
                    "Directory",
                    "DirectoryOrCreate",
                    "File",
                    "FileOrCreate",
                    "Socket",
                ]);
            }
        }
        "gitRepo" => {
            need(at, &["repository"]);
            format::descending_path(&at.get("directory"), at.text_of("directory"));
        }
        "gcePersistentDisk" | "awsElasticBlockStore" => {
            need(at, &[if name == "gcePersistentDisk" { "pdName" } else { "volumeID" }]);
            if !(0..=255).contains(&at.int_of("partition")) {
                at.get("partition").invalid("must be between 1 and 255, inclusive");
            }
        }
        "secret" => {
            need(at, &["secretName"]);
            keys(at);
        }
        "configMap" => {
            need(at, &["name"]);
            keys(at);
        }
        "nfs" => {
            need(at, &["server", "path"]);
            let path = at.get("path");
            if !path.text().starts_with('/') {
                path.invalid_as(&path.text().into(), "must be an absolute path");
            }
        }
        "iscsi" => iscsi(at, owner),
        "glusterfs" => {
            need(at, &["endpoints", "path"]);
            if let Some(namespace) = at.given("endpointsNamespace") {
                if namespace.text().is_empty() {
                    namespace.invalid(
                        "if the endpointnamespace is set, it must be a valid namespace name",
                    );
                } else {
                    namespace.faults(name::dns1123_label(namespace.text()));
                }
            }
        }
        "flocker" => {
            match (at.text_of("datasetName"), at.text_of("datasetUUID")) {
                ("", "") => at.required("one of datasetName and datasetUUID is required"),
                ("", _) | (_, "") => {}
                _ => at.invalid_as(
                    &"resource".into(),
                    "datasetName and datasetUUID can not be specified simultaneously",
                ),
            }
            if at.text_of("datasetName").contains('/') {
                at.get("datasetName").invalid("must not contain '/'");
            }
        }
        "persistentVolumeClaim" => need(at, &["claimName"]),
        "rbd" => need(at, &["monitors", "image"]),
        "cephfs" => need(at, &["monitors"]),
        "cinder" => {
            need(at, &["volumeID"]);
            secret_ref(at, owner);
        }
        "storageos" => {
            at.get("volumeName").named(name::dns1123_label);
            at.get("volumeNamespace").named_if_set(name::dns1123_label);
            secret_ref(at, owner);
        }
        "quobyte" => quobyte(at),
        "downwardAPI" => {
            mode(at, "defaultMode");
            for file in at.list_of("items") {
                downward_file(file, at);
            }
        }
        "fc" => fibre_channel(at),
        "flexVolume" => {
            need(at, &["driver"]);
            for (key, option) in at.entries("options") {
                let domain = key.split_once('/').map_or(key, |(domain, _)| domain);
                let domain = format!(".{}", domain.to_lowercase());
                if domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io") {
                    option.invalid_as(
                        &key.into(),
                        "kubernetes.io and k8s.io namespaces are reserved",
                    );
                }
            }
        }
        "azureFile" => {
            need(at, &["secretName", "shareName"]);
            if at.has("secretNamespace") {
                need(at, &["secretNamespace"]);
            }
        }
        "azureDisk" => azure_disk(at),
        "vsphereVolume" => need(at, &["volumePath"]),
        "photonPersistentDisk" => need(at, &["pdID"]),
        "portworxVolume" => need(at, &["volumeID"]),
        "scaleIO" => need(at, &["gateway", "system", "volumeName"]),
        "local" => {
            let path = at.get("path");
            if path.need() {
                format::no_backsteps(&path, path.text());
            }
        }
        "projected" => projected::projected(at),
        "csi" if owner.is_cluster() => cluster_csi(at),
        "csi" => {
            format::driver(&at.get("driver"));
            let secret = at.get("nodePublishSecretRef");
            if secret.is_set() && secret.get("name").need() {
                let name = secret.get("name");
                at.shown_as("name", name.value).faults(name::dns1123_subdomain(name.text()));
            }
        }
        "ephemeral" => match at.given("volumeClaimTemplate") {
            None => at.get("volumeClaimTemplate").required(""),
            Some(template) => {
                super::metadata_of_template(&template.get("metadata"));
                claim_spec(&template.get("spec"));
            }
        },
        "image" => {
            if matches!(owner, Owner::Pod(Some(_))) {
                need(at, &["reference"]);
            }
            at.get("pullPolicy").one_of(&["Always", "IfNotPresent", "Never"]);
        }
        _ => {}
    }
}

fn secret_ref(at: &At<'_, '_>, owner: Owner<'_>) {
    if let Some(secret) = at.given("secretRef") {
        need(&secret, &["name"]);
        if owner.is_cluster() {
            need(&secret, &["namespace"]);
        }
    }
}

/// The mode of files, in octal at most 0777.
fn mode(at: &At<'_, '_>, member: &str) {
    let mode = at.get(member);
    if mode.int().is_some_and(|mode| !(0..=0o777).contains(&mode)) {
        mode.invalid("must be a number between 0 and 0777 (octal), both inclusive");
    }
}
/// Files from keys of a Secret or ConfigMap.
fn keys(at: &At<'_, '_>) {
    mode(at, "defaultMode");
    for item in at.each("items") {
        key_to_path(&item);
    }
}
fn key_to_path(item: &At<'_, '_>) {
    need(item, &["key", "path"]);
    format::unreserved_path(&item.get("path"), item.text_of("path"));
    mode(item, "mode");
}

/// A file with a field of the pod. The API's paths lack the index: `shown` is the volume source.
fn downward_file<'v>(file: &'v Value, shown: &At<'v, '_>) {
    let shown = shown.with(file);
    let path = shown.get("path");
    path.need();
    format::unreserved_path(&path, path.text());
    match (file.get("fieldRef"), file.get("resourceFieldRef")) {
        (Some(field), other) => {
            environment::file_field_ref(&shown.shown_as("fieldRef", field));
            if other.is_some() {
                shown.invalid_as(
                    &"resource".into(),
                    "fieldRef and resourceFieldRef can not be specified simultaneously",
                );
            }
        }
        (None, Some(resource)) => {
            environment::resource_ref(&shown.shown_as("resourceFieldRef", resource), true);
        }
        (None, None) => shown.required("one of fieldRef and resourceFieldRef is required"),
    }
    mode(&shown, "mode");
}

/// Maximum length of a volume's name, a colon and its portal, in bytes.
const PORTAL_MAX: usize = 64;

const LONG_PORTAL: &str = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";

/// Whether the name of a volume and its portal are longer together than an initiator may be.
fn is_long_portal(iscsi: &At<'_, '_>, name: &str) -> bool {
    let portal = iscsi.text_of("targetPortal");
    iscsi.has("initiatorName") && name.len() + 1 + portal.len() > PORTAL_MAX
}

fn iscsi(at: &At<'_, '_>, owner: Owner<'_>) {
    let portal = at.get("targetPortal");
    portal.need();
    if let Owner::Cluster(name) = owner
        && is_long_portal(at, name)
    {
        at.shown_as("targetportal", portal.value).invalid(LONG_PORTAL);
    }
    let prefix_message = match owner {
        Owner::Pod(_) => "must be valid format starting with iqn, eui, or naa",
        Owner::Cluster(_) => "must be valid format",
    };
    let name_form = |at: &At<'_, '_>| {
        let text = at.text();
        let is_valid = match text.get(..3) {
            Some("iqn") => is_iqn(text),
            Some("eui") => {
                text.len() == 20 && text[3..].bytes().skip(1).all(|b| b.is_ascii_alphanumeric())
            }
            Some("naa") => {
                text.len() == 36 && text[3..].bytes().skip(1).all(|b| b.is_ascii_alphanumeric())
            }
            _ => return at.invalid(prefix_message),
        };
        if !is_valid {
            at.invalid("must be valid format");
        }
    };
    let target = at.get("iqn");
    if target.need() {
        name_form(&target);
    }
    at.get("lun").between(0, 255);
    let secret = at.get("secretRef");
    if (at.is("chapAuthDiscovery") || at.is("chapAuthSession")) && !secret.is_set() {
        secret.required("");
    }
    if owner.is_cluster() && secret.is_set() {
        need(&secret, &["name"]);
    }
    let initiator = at.shown_as("initiatorname", at.get("initiatorName").value);
    if initiator.is_set() {
        name_form(&initiator);
    }
}
/// `iqn.`, a year and a month, a domain, and a text after a colon.
fn is_iqn(text: &str) -> bool {
    let Some((date, rest)) = text.strip_prefix("iqn.").and_then(|rest| rest.split_once('.')) else {
        return false;
    };
    let Some((domain, id)) = rest.split_once(':') else { return false };
    let bytes = date.as_bytes();
    let is_date = bytes.len() == 7
        && bytes
            .iter()
            .enumerate()
            .all(|(i, b)| if i == 4 { *b == b'-' } else { b.is_ascii_digit() });
    let is_domain = !domain.is_empty()
        && domain.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.'));
    let is_forbidden = |c: char| ",;*&$|\t\n\x0c\r ".contains(c);
    is_date && is_domain && !id.is_empty() && !id.contains(is_forbidden)
}

fn fibre_channel(at: &At<'_, '_>) {
    let (targets, ids, lun) = (at.get("targetWWNs"), at.get("wwids"), at.get("lun"));
    match (targets.len(), ids.len()) {
        (0, 0) => targets.required("must specify either targetWWNs or wwids, but not both"),
        (0, _) => {}
        (_, n_ids) => {
            if n_ids > 0 {
                targets.invalid("targetWWNs and wwids can not be specified simultaneously");
            }
            if lun.is_set() {
                lun.between(0, 255);
            } else {
                lun.required("lun is required if targetWWNs is specified");
            }
        }
    }
}

/// `host:port`, either of which may be empty. A host with colons has brackets.
fn is_host_and_port(text: &str) -> bool {
    let parts = match text.strip_prefix('[') {
        Some(rest) => rest.split_once("]:"),
        None => text.split_once(':'),
    };
    parts.is_some_and(|(host, port)| !host.contains(['[', ']']) && !port.contains(['[', ']', ':']))
}

fn quobyte(at: &At<'_, '_>) {
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let registry = at.get("registry");
    if registry.need_for(PAIRS) {
        let tenant = at.get("tenant");
        if tenant.text().len() >= 65 {
            tenant.required("must be a UUID and may not exceed a length of 64 characters");
        } else {
            let pairs = registry.text().split(',').take_while(|_| !registry.is_full());
            pairs.filter(|pair| !is_host_and_port(pair)).for_each(|_| registry.invalid(PAIRS));
        }
    }
    need(at, &["volume"]);
}

fn azure_disk(at: &At<'_, '_>) {
    need(at, &["diskName", "diskURI"]);
    at.get("cachingMode").one_of_if_set(&["None", "ReadOnly", "ReadWrite"]);
    let kind = at.get("kind");
    kind.one_of_if_set(&["Dedicated", "Managed", "Shared"]);
    let uri = at.get("diskURI");
    if !kind.is_set() {
        return;
    }
    let (prefix, form) = match kind.text() {
        "Managed" => (
            "/subscriptions/",
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}",
        ),
        _ => (
            "https://",
            "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd",
        ),
    };
    if !uri.text().starts_with(prefix) {
        uri.choice(&[form]);
    }
}

fn cluster_csi(at: &At<'_, '_>) {
    format::driver(&at.get("driver"));
    need(at, &["volumeHandle"]);
    for member in [
        "controllerPublishSecretRef",
        "controllerExpandSecretRef",
        "nodePublishSecretRef",
        "nodeExpandSecretRef",
    ] {
        if let Some(secret) = at.given(member) {
            secret.get("name").named(name::dns1123_subdomain);
            secret.get("namespace").named(name::dns1123_label);
        }
    }
}

/// The ways in which a volume is accessed.
pub(in crate::kind) fn access_modes(modes: &At<'_, '_>) {
    const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
    let (mut alone, mut shared) = (false, false);
    for mode in modes.list() {
        match mode.as_str() {
            Some("ReadWriteOncePod") => alone = true,
            Some(mode) if MODES.contains(&mode) => shared = true,
            _ => modes.report(|path| field::Error::not_supported(path, mode, &MODES)),
        }
    }
    if alone && shared {
        modes.forbidden("may not use ReadWriteOncePod with other access modes");
    }
}

/// The request of a claim.
pub(in crate::kind) fn claim_spec(at: &At<'_, '_>) {
    claim(at, true);
}
/// The spec of a claim, whose sources of data may be of any group if not `checks_groups`.
pub(in crate::kind) fn claim(at: &At<'_, '_>, checks_groups: bool) {
    let modes = at.get("accessModes");
    modes.need_for("at least 1 access mode is required");
    at.get("selector").selector();
    access_modes(&modes);
    let (requested, amount) = (at.get("resources"), at.get("resources.requests.storage").value);
    let storage = requested.key("storage").with(amount);
    if storage.need() {
        resources::positive(&storage, "must be greater than zero");
    }
    at.get("storageClassName").named_if_set(name::dns1123_subdomain);
    at.get("volumeMode").one_of_if_set(&["Block", "Filesystem"]);
    let (source, reference) = (at.get("dataSource"), at.get("dataSourceRef"));
    for source in [&source, &reference] {
        if source.is_set() {
            data_source(source, checks_groups);
        }
    }
    if reference.is_set() && source.is_set() {
        if !reference.text_of("namespace").is_empty() {
            at.invalid_as(
                &json!({}),
                "may not be specified when dataSourceRef.namespace is specified",
            );
        } else if ["apiGroup", "kind", "name"]
            .iter()
            .any(|member| source.get(member).value != reference.get(member).value)
        {
            at.invalid_as(&json!({}), "must match dataSourceRef");
        }
    }
    at.get("volumeAttributesClassName").named_if_set(name::dns1123_subdomain);
}
fn data_source(at: &At<'_, '_>, checks_group: bool) {
    need(at, &["name", "kind"]);
    let group = at.get("apiGroup");
    if group.text().is_empty() && at.text_of("kind") != "PersistentVolumeClaim" {
        at.invalid_as(
            &at.text_of("kind").into(),
            "must be 'PersistentVolumeClaim' when referencing the default apiGroup",
        );
    }
    if checks_group {
        group.named_if_set(name::dns1123_subdomain);
    }
    at.get("namespace").named_if_set(name::dns1123_label);
}
