//! A pod or a template, as checks see it.
use crate::kind::{list, text};
use serde_json::Value;

/// The annotations of old versions.
pub(super) const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
pub(super) const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";

/// Metadata and spec.
#[derive(Debug)]
pub(super) struct Subject<'a> {
    object: &'a Value,
}

impl<'a> Subject<'a> {
    pub(super) fn new(object: &'a Value) -> Self {
        Self { object }
    }
    pub(super) fn spec(&self) -> &'a Value {
        &self.object["spec"]
    }
    /// The annotations, in the order of their keys.
    pub(super) fn annotations(&self) -> Vec<(&'a str, &'a str)> {
        let all = self.object["metadata"]["annotations"].as_object().into_iter().flatten();
        let mut all: Vec<(&str, &str)> =
            all.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?))).collect();
        all.sort_unstable();
        all
    }
    /// All containers: init, ordinary, ephemeral.
    pub(super) fn containers(&self) -> impl Iterator<Item = &'a Value> + use<'a> {
        let spec = self.spec();
        let lists = ["initContainers", "containers", "ephemeralContainers"];
        lists.into_iter().flat_map(|member| list(spec, member))
    }
    pub(super) fn volumes(&self) -> &'a [Value] {
        list(self.spec(), "volumes")
    }
    /// The names of the containers that fulfil a condition.
    pub(super) fn names(&self, condition: impl Fn(&'a Value) -> bool) -> Vec<&'a str> {
        self.containers().filter(|c| condition(c)).map(|c| text(c, "name")).collect()
    }
    /// `pod`, and containers, whose security context fulfils a condition: `pod and container "a"`.
    pub(super) fn setters(&self, is_bad: impl Fn(&'a Value) -> bool) -> Option<String> {
        let pod = is_bad(&self.spec()["securityContext"]).then(|| "pod".to_owned());
        let names = self.names(|container| is_bad(&container["securityContext"]));
        let containers = (!names.is_empty()).then(|| containers(&names));
        let all: Vec<String> = pod.into_iter().chain(containers).collect();
        (!all.is_empty()).then(|| all.join(" and "))
    }
    /// The values in the security contexts, of the pod first.
    pub(super) fn contexts(&self) -> impl Iterator<Item = &'a Value> + use<'a> {
        let pod = &self.spec()["securityContext"];
        [pod].into_iter().chain(self.containers().map(|container| &container["securityContext"]))
    }
    pub(super) fn is_windows(&self) -> bool {
        self.spec()["os"]["name"] == "windows"
    }
    /// Users of the pod are not users of its node.
    pub(super) fn has_own_users(&self) -> bool {
        self.spec()["hostUsers"] == false
    }
}

/// `container "a"` or `containers "a", "b"`.
pub(super) fn containers(names: &[&str]) -> String {
    format!("{} {}", plural("container", "containers", names.len()), quoted(names))
}
pub(super) fn plural<'t>(one: &'t str, several: &'t str, n: usize) -> &'t str {
    if n == 1 { one } else { several }
}
/// `"a", "b"`, without escapes.
pub(super) fn quoted(texts: &[&str]) -> String {
    texts.iter().map(|text| format!("\"{text}\"")).collect::<Vec<_>>().join(", ")
}
/// Sorted, each once.
pub(super) fn set<'t>(texts: impl Iterator<Item = &'t str>) -> Vec<&'t str> {
    let mut all: Vec<&str> = texts.collect();
    all.sort_unstable();
    all.dedup();
    all
}
