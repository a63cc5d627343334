//! The variables of a container.

use crate::env_file;
use crate::paths::below;
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, EnvVar, FileKeySelector, Pod, ResourceRequirements, Secret,
};
use setpoint_object::quantity::Quantity;
use setpoint_runtime::{BoxError, Client, Request};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;

/// What fields of a pod show before its status does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PodAddresses {
    pub(crate) pod: Ipv4Addr,
    pub(crate) host: Ipv4Addr,
}

/// Looks up what pods refer to.
pub(crate) struct Lookup<'a> {
    pub(crate) client: &'a Client,
    pub(crate) namespace: &'a str,
}

impl Lookup<'_> {
    fn key(&self, name: &str) -> Request {
        Request::new(self.namespace, name)
    }

    /// The data of a ConfigMap; `None` if it does not exist and need not.
    pub(crate) async fn config_map(
        &self,
        name: &str,
        is_optional: bool,
    ) -> Result<Option<BTreeMap<String, Vec<u8>>>, BoxError> {
        match self.client.api::<ConfigMap>().get_live(&self.key(name)).await? {
            Some(found) => {
                let texts = found.data.unwrap_or_default().into_iter();
                let texts = texts.map(|(key, text)| (key, text.into_bytes()));
                let bytes = found.binary_data.unwrap_or_default().into_iter();
                Ok(Some(texts.chain(bytes.map(|(key, bytes)| (key, bytes.0))).collect()))
            }
            None if is_optional => Ok(None),
            None => Err(format!("configmap \"{name}\" not found").into()),
        }
    }

    /// The data of a Secret; `None` if it does not exist and need not.
    pub(crate) async fn secret(
        &self,
        name: &str,
        is_optional: bool,
    ) -> Result<Option<BTreeMap<String, Vec<u8>>>, BoxError> {
        match self.client.api::<Secret>().get_live(&self.key(name)).await? {
            Some(found) => {
                let data = found.data.unwrap_or_default().into_iter();
                Ok(Some(data.map(|(key, bytes)| (key, bytes.0)).collect()))
            }
            None if is_optional => Ok(None),
            None => Err(format!("secret \"{name}\" not found").into()),
        }
    }
}

/// The variables of a container, in order. Later ones replace earlier ones. `volumes`: the folders
/// of the pod's volumes.
///
/// # Errors
///
/// What a variable refers to does not exist.
pub(crate) async fn variables(
    lookup: &Lookup<'_>,
    pod: &Pod,
    container: &Container,
    addresses: PodAddresses,
    volumes: &BTreeMap<String, PathBuf>,
) -> Result<Vec<(String, String)>, BoxError> {
    let mut variables: Vec<(String, String)> = Vec::new();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    for source in container.env_from.iter().flatten() {
        let data = match (&source.config_map_ref, &source.secret_ref) {
            (Some(map), _) => lookup.config_map(&map.name, map.optional.unwrap_or(false)).await?,
            (None, Some(secret)) => {
                lookup.secret(&secret.name, secret.optional.unwrap_or(false)).await?
            }
            (None, None) => None,
        };
        let prefix = source.prefix.as_deref().unwrap_or_default();
        for (key, value) in data.into_iter().flatten() {
            set(&mut variables, format!("{prefix}{key}"), text(value));
        }
    }
    for variable in container.env.iter().flatten() {
        let file = variable.value_from.as_ref().and_then(|from| from.file_key_ref.as_ref());
        let found = match (&variable.value_from, file) {
            (None, _) => {
                let value = variable.value.as_deref().unwrap_or_default();
                Some(expand(value, &variables))
            }
            (Some(_), Some(file)) => value_in_file(volumes, file).await?,
            (Some(_), None) => value_from(lookup, pod, container, variable, addresses).await?,
        };
        if let Some(value) = found {
            set(&mut variables, variable.name.clone(), value);
        }
    }
    Ok(variables)
}

fn set(variables: &mut Vec<(String, String)>, name: String, value: String) {
    match variables.iter_mut().find(|(known, _)| *known == name) {
        Some(known) => known.1 = value,
        None => variables.push((name, value)),
    }
}

async fn value_from(
    lookup: &Lookup<'_>,
    pod: &Pod,
    container: &Container,
    variable: &EnvVar,
    addresses: PodAddresses,
) -> Result<Option<String>, BoxError> {
    let Some(from) = &variable.value_from else { return Ok(None) };
    if let Some(field) = &from.field_ref {
        return field_of(pod, &field.field_path, addresses).map(Some);
    }
    if let Some(resource) = &from.resource_field_ref {
        let divisor = resource.divisor.as_ref().map_or("", |divisor| &divisor.0);
        return Ok(Some(resource_of(pod, container, &resource.resource, divisor)));
    }
    let (kind, reference, data) = match (&from.config_map_key_ref, &from.secret_key_ref) {
        (Some(map), _) => {
            let is_optional = map.optional.unwrap_or(false);
            let data = lookup.config_map(&map.name, is_optional).await?;
            ("ConfigMap", (&map.name, &map.key, is_optional), data)
        }
        (None, Some(secret)) => {
            let is_optional = secret.optional.unwrap_or(false);
            let data = lookup.secret(&secret.name, is_optional).await?;
            ("Secret", (&secret.name, &secret.key, is_optional), data)
        }
        (None, None) => return Err(format!("{} has an unknown source", variable.name).into()),
    };
    let (name, key, is_optional) = reference;
    match data.and_then(|mut data| data.remove(key)) {
        Some(value) => Ok(Some(String::from_utf8_lossy(&value).into_owned())),
        None if is_optional => Ok(None),
        None => {
            let namespace = lookup.namespace;
            Err(format!("couldn't find key {key} in {kind} {namespace}/{name}").into())
        }
    }
}

/// A variable in a file of a volume.
async fn value_in_file(
    volumes: &BTreeMap<String, PathBuf>,
    file: &FileKeySelector,
) -> Result<Option<String>, BoxError> {
    let FileKeySelector { key, optional, path, volume_name: volume } = file;
    let folder = volumes.get(volume);
    let folder = folder
        .ok_or_else(|| format!("cannot find the volume \"{volume}\" referenced by FileKeyRef"))?;
    let path = below(folder, path).ok_or_else(|| format!("{path} is not in its volume"))?;
    match env_file::read(path.clone(), key).await {
        Ok(None) if *optional != Some(true) => {
            let path = path.display();
            Err(format!("environment variable key \"{key}\" not found in file \"{path}\"").into())
        }
        Ok(found) => Ok(found),
        Err(error) => Err(format!("couldn't parse env file: {error}").into()),
    }
}

/// A field of a pod as text.
///
/// # Errors
///
/// The field is not one that pods may refer to.
pub(crate) fn field_of(pod: &Pod, path: &str, addresses: PodAddresses) -> Result<String, BoxError> {
    let (meta, spec) = (&pod.metadata, pod.spec.as_ref());
    if let Some((map, key)) = path.strip_suffix("']").and_then(|path| path.split_once("['")) {
        let map = match map {
            "metadata.labels" => &meta.labels,
            "metadata.annotations" => &meta.annotations,
            _ => return Err(format!("unsupported field path {path}").into()),
        };
        let value = map.as_ref().and_then(|map| map.get(key));
        return Ok(value.cloned().unwrap_or_default());
    }
    let of_spec = |field: Option<&String>| field.cloned().unwrap_or_default();
    let host_network = spec.and_then(|spec| spec.host_network) == Some(true);
    let ip = if host_network { addresses.host } else { addresses.pod };
    Ok(match path {
        "metadata.name" => meta.name.clone().unwrap_or_default(),
        "metadata.namespace" => meta.namespace.clone().unwrap_or_default(),
        "metadata.uid" => meta.uid.clone().unwrap_or_default(),
        "metadata.labels" => lines(meta.labels.as_ref()),
        "metadata.annotations" => lines(meta.annotations.as_ref()),
        "spec.nodeName" => of_spec(spec.and_then(|spec| spec.node_name.as_ref())),
        "spec.serviceAccountName" => {
            of_spec(spec.and_then(|spec| spec.service_account_name.as_ref()))
        }
        "status.podIP" | "status.podIPs" => ip.to_string(),
        "status.hostIP" | "status.hostIPs" => addresses.host.to_string(),
        _ => return Err(format!("unsupported field path {path}").into()),
    })
}

/// `key="value"` in lines, as volumes of the downward API have them.
fn lines(map: Option<&BTreeMap<String, String>>) -> String {
    let lines = map.into_iter().flatten().map(|(key, value)| format!("{key}={value:?}"));
    lines.collect::<Vec<_>>().join("\n")
}

/// A request or limit of a container in units of a divisor, rounded up. Without a limit: that of
/// the pod, or of the machine.
pub(crate) fn resource_of(
    pod: &Pod,
    container: &Container,
    resource: &str,
    divisor: &str,
) -> String {
    let resources = container.resources.as_ref();
    let of_pod = pod.spec.as_ref().and_then(|spec| spec.resources.as_ref());
    let limits = |found: Option<&ResourceRequirements>| found.and_then(|all| all.limits.clone());
    let (map, name) = match resource.split_once('.') {
        Some(("limits", name)) => {
            let mut all = limits(of_pod).unwrap_or_default();
            all.extend(limits(resources).unwrap_or_default());
            (Some(all), name)
        }
        Some((_, name)) => (resources.and_then(|found| found.requests.clone()), name),
        None => (None, resource),
    };
    let parse = |text: &str| Quantity::parse(text).ok();
    let machine = || match (resource.starts_with("limits"), name) {
        (true, "cpu") => parse(&crate::node::cores().to_string()),
        (true, "memory") => parse(&crate::node::memory().to_string()),
        _ => None,
    };
    let amount = map.and_then(|map| map.get(name).and_then(|amount| parse(&amount.0)));
    let Some(amount) = amount.or_else(machine) else { return "0".to_owned() };
    let divisor = parse(divisor).filter(|divisor| !divisor.is_zero());
    let divisor = divisor.unwrap_or_else(|| Quantity::from_units(1));
    let (amount, divisor) = match name {
        "cpu" => (amount.milli_value(), divisor.milli_value()),
        _ => (amount.value(), divisor.value()),
    };
    // Their sum may be larger than either type of the API.
    let (amount, divisor) = (i128::from(amount), i128::from(divisor.max(1)));
    ((amount + divisor - 1) / divisor).to_string()
}

/// Replaces `$(NAME)` by variables; unknown names stay, and `$$` is a dollar.
pub(crate) fn expand(text: &str, variables: &[(String, String)]) -> String {
    let (mut expanded, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('$') {
        expanded.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            expanded.push('$');
            rest = after;
            continue;
        }
        let name = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'));
        let known = name.and_then(|(name, after)| {
            let variable = variables.iter().find(|(known, _)| known == name)?;
            Some((&variable.1, after))
        });
        match known {
            Some((value, after)) => {
                expanded.push_str(value);
                rest = after;
            }
            None => expanded.push('$'),
        }
    }
    expanded.push_str(rest);
    expanded
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ADDRESSES: PodAddresses =
        PodAddresses { pod: Ipv4Addr::new(127, 64, 0, 5), host: Ipv4Addr::LOCALHOST };

    #[test]
    fn references_are_expanded() {
        let variables = [("A".to_owned(), "1".to_owned())];
        for (text, expanded) in
            [("$(A)-$(B)", "1-$(B)"), ("$$(A) $ $A", "$(A) $ $A"), ("x$(A", "x$(A")]
        {
            assert_eq!(expand(text, &variables), expanded);
        }
    }

    #[test]
    fn fields_of_the_pod_are_known_before_its_status() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "labels": {"a": "b", "c": "d"}},
            "spec": {"containers": [], "nodeName": "n"},
        }))
        .unwrap();
        let field = |path: &str| field_of(&pod, path, ADDRESSES).unwrap();
        assert_eq!(field("metadata.name"), "p");
        assert_eq!(field("status.podIP"), "127.64.0.5");
        assert_eq!(field("metadata.labels"), "a=\"b\"\nc=\"d\"");
        assert_eq!(field("metadata.labels['c']"), "d");
        assert!(field_of(&pod, "spec.hostname", ADDRESSES).is_err());
    }

    #[test]
    fn resources_are_rounded_up() {
        let container: Container = serde_json::from_value(json!({
            "name": "c", "resources": {"limits": {"cpu": "1500m", "memory": "65Mi"}},
        }))
        .unwrap();
        let limits = json!({"cpu": "3", "memory": "1Gi"});
        let pod: Pod = serde_json::from_value(json!({
            "spec": {"containers": [], "resources": {"limits": limits}},
        }))
        .unwrap();
        let amount =
            |resource: &str, divisor: &str| resource_of(&pod, &container, resource, divisor);
        assert_eq!(amount("limits.cpu", ""), "2");
        assert_eq!(amount("limits.cpu", "1m"), "1500");
        assert_eq!(amount("limits.memory", "1Mi"), "65");
        assert_eq!(amount("requests.cpu", ""), "0");
        let largest: Container = serde_json::from_value(json!({
            "name": "c", "resources": {"limits": {"cpu": "9E", "memory": "9223372036854775807"}},
        }))
        .unwrap();
        let amount = |resource: &str, divisor: &str| resource_of(&pod, &largest, resource, divisor);
        assert_eq!(amount("limits.memory", "1Mi"), "8796093022208");
        assert_eq!(amount("limits.memory", "1"), "9223372036854775807");
        assert_eq!(amount("limits.cpu", "1"), "9223372036854776");
        let without = Container::default();
        assert_eq!(resource_of(&pod, &without, "limits.cpu", ""), "3", "the pod's");
        assert_ne!(resource_of(&Pod::default(), &without, "limits.cpu", ""), "0", "the machine's");
    }
}
