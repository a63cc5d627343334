//! Rules for names of resources, and for plugins.

use super::error::{Violation, shown};
use crate::resource::GroupResource;
use setpoint_object::duration;
use std::collections::BTreeSet;
use std::time::Duration;

/// The problem with a name by itself.
pub(super) fn name_fault(name: &str) -> Option<Violation> {
    let text = || name.to_owned();
    let GroupResource { group, resource } = GroupResource::parse(name);
    if name.to_lowercase() != name {
        Some(Violation::Capital(text()))
    } else if name == "*" {
        Some(Violation::Star)
    } else if matches!(
        name,
        "apiserveripinfo" | "serviceipallocations" | "servicenodeportallocations"
    ) {
        Some(Violation::NoApi(text()))
    } else if group == "events.k8s.io" {
        Some(Violation::Events(text()))
    } else if group == "extensions" {
        Some(Violation::Extensions(text()))
    } else if group == "*" && resource != "*" {
        Some(Violation::AcrossGroups(text()))
    } else {
        None
    }
}

/// The problems of the names of one list: at most one of each kind, as in Kubernetes.
pub(super) fn list_faults(texts: &[&str]) -> impl Iterator<Item = Violation> {
    let names: Vec<_> = texts.iter().map(|name| GroupResource::parse(name)).collect();
    let distinct: BTreeSet<_> = names.iter().collect();
    let is_all = |name: &GroupResource| name.group == "*" && name.resource == "*";
    let covers = |one: &GroupResource, other: &GroupResource| {
        one != other && (is_all(one) || one.group == other.group && one.resource == "*")
    };
    let overlaps = distinct.iter().any(|one| distinct.iter().any(|other| covers(one, other)));
    let texts = || texts.iter().map(|text| shown(text).to_owned()).collect();
    let duplicates = (distinct.len() < names.len()).then(|| Violation::Duplicate(texts()));
    duplicates.into_iter().chain(overlaps.then(|| Violation::Overlap(texts())))
}

/// What earlier entries cover.
#[derive(Debug, Default)]
pub(super) struct Masks {
    wildcards: BTreeSet<GroupResource>,
}

impl Masks {
    /// Adds a name, in the order of the file. Returns the problem if it is covered.
    pub(super) fn take(&mut self, name: &GroupResource) -> Option<Violation> {
        let all_of =
            |group: &str| GroupResource { group: group.to_owned(), resource: "*".to_owned() };
        for rule in [all_of(&name.group), all_of("*")] {
            if self.wildcards.contains(&rule) {
                return Some(Violation::Masked {
                    resource: name.to_string(),
                    rule: rule.to_string(),
                });
            }
        }
        if name.resource == "*" {
            self.wildcards.insert(name.clone());
        }
        None
    }
}

/// The names of plugins so far.
#[derive(Debug, Default)]
pub(super) struct PluginNames(BTreeSet<String>);

impl PluginNames {
    /// Adds a name. Returns its problems.
    pub(super) fn faults(&mut self, name: &str, version: &str) -> Vec<Violation> {
        let mut faults = Vec::new();
        let is_first = self.0.insert(name.to_owned());
        if name.is_empty() {
            faults.push(Violation::NoKmsName);
        }
        if version != "v1" && name.contains(':') {
            faults.push(Violation::KmsName(name.to_owned()));
        }
        if version != "v1" && !is_first {
            faults.push(Violation::DuplicateKmsName(name.to_owned()));
        }
        faults
    }
}

/// The timeout of a plugin's calls by default: three seconds, as in Kubernetes.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Parses the timeout of a plugin's calls.
pub(super) fn timeout(text: &str) -> Result<Duration, Violation> {
    if text.is_empty() {
        return Ok(TIMEOUT);
    }
    let nanos = duration::parse(text).map_err(|_| Violation::Duration(shown(text).to_owned()))?;
    match u64::try_from(nanos) {
        Ok(nanos) if nanos > 0 => Ok(Duration::from_nanos(nanos)),
        _ => Err(Violation::Timeout(text.to_owned())),
    }
}

/// The path of a plugin's socket: of a URL, as Go parses it.
pub(super) fn socket(endpoint: &str) -> Result<String, Violation> {
    if endpoint.is_empty() {
        return Err(Violation::NoEndpoint);
    }
    let wrong = |why| Violation::Endpoint { endpoint: endpoint.to_owned(), why };
    if endpoint.bytes().any(|byte| byte.is_ascii_control()) {
        return Err(wrong("net/url: invalid control character in URL"));
    }
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
    };
    let (scheme, rest) = match endpoint.split_once(':') {
        Some(("", _)) => return Err(wrong("missing protocol scheme")),
        Some((scheme, rest)) if is_scheme(scheme) => (scheme.to_ascii_lowercase(), rest),
        _ => (String::new(), endpoint),
    };
    if scheme != "unix" {
        return Err(Violation::Scheme { endpoint: endpoint.to_owned(), scheme });
    }
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let path = match rest.strip_prefix("//") {
        Some(rest) => rest.find('/').map_or("", |at| &rest[at..]),
        // An opaque URL has no path.
        None if !rest.starts_with('/') => "",
        None => rest,
    };
    let path = percent_encoding::percent_decode_str(path).decode_utf8();
    let path = path.map_err(|_| wrong("invalid URL escape"))?;
    // The name of an abstract socket begins with `@`.
    Ok(match path.strip_prefix('/') {
        Some(name) if name.starts_with('@') => name.to_owned(),
        _ => path.into_owned(),
    })
}
