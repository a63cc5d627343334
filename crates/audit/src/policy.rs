//! The policy file: which requests are recorded, and how much of them (spec: auth §3).

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use setpoint_apiserver::{AuditLevel, Stage};
use setpoint_configuration::{DocumentError, Kind};
use setpoint_object::field::{self, Error, Path as Field};
use setpoint_object::name::dns1123_subdomain;
use setpoint_registry::{Attributes, Identity};
use setpoint_small_file::SmallFileError;
use std::path::{Path, PathBuf};

/// Maximum size of a policy file in bytes.
pub const POLICY_BYTES_MAX: usize = 1 << 20;
/// Maximum number of rules. Every request is compared with each of them until one matches.
pub const RULES_MAX: usize = 1024;

/// Why a policy cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// The file cannot be read.
    #[error("read the audit policy {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The file is too long.
    #[error("the audit policy {} is longer than {POLICY_BYTES_MAX} bytes", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// It is not a policy.
    #[error("decode the audit policy: {0}")]
    Document(#[from] DocumentError),
    /// It is a policy that says nothing useful, or contradicts itself.
    #[error("the audit policy is invalid: {0}")]
    Invalid(String),
}

/// A policy: rules in order, the first that matches a request counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    rules: Vec<Rule>,
    omit_stages: Vec<Stage>,
    omit_managed_fields: bool,
}

/// The decision of a policy about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict<'p> {
    /// How much is recorded.
    pub level: AuditLevel,
    /// Whether `metadata.managedFields` of recorded objects are left out.
    pub omits_managed_fields: bool,
    rule: Option<&'p Rule>,
    policy: &'p Policy,
}

impl Verdict<'_> {
    /// Whether this stage is recorded.
    pub fn has(&self, stage: Stage) -> bool {
        let omitted = self.rule.map_or(&[][..], |rule| &rule.omit_stages);
        self.level > AuditLevel::None
            && !self.policy.omit_stages.contains(&stage)
            && !omitted.contains(&stage)
    }
}

/// A rule. An empty list matches everything.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    level: AuditLevel,
    users: Vec<String>,
    user_groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<GroupResources>,
    namespaces: Vec<String>,
    non_resource_urls: Vec<String>,
    omit_stages: Vec<Stage>,
    omit_managed_fields: Option<bool>,
}

const KIND: Kind = Kind { name: "Policy", versions: &["audit.k8s.io/v1"] };

/// The file. Unknown fields are refused: a rule with a misspelt condition would match more.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct File {
    #[allow(dead_code, reason = "objects have metadata, and nothing of it counts here")]
    metadata: Option<IgnoredAny>,
    rules: Vec<FileRule>,
    omit_stages: Vec<String>,
    omit_managed_fields: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct FileRule {
    level: String,
    users: Vec<String>,
    user_groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<GroupResources>,
    namespaces: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
    omit_stages: Vec<String>,
    omit_managed_fields: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct GroupResources {
    group: String,
    resources: Vec<String>,
    resource_names: Vec<String>,
}

impl Policy {
    /// Reads a file. Blocks: call it at start.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is too long or is no valid policy.
    pub fn read(path: &Path) -> Result<Self, PolicyError> {
        let text = setpoint_small_file::read_text(path, POLICY_BYTES_MAX);
        Self::parse(&text.map_err(|error| match error {
            SmallFileError::Read { path, source } => PolicyError::Read { path, source },
            SmallFileError::TooLong { path, .. } => PolicyError::TooLong { path },
        })?)
    }

    /// Parses a policy: YAML or JSON.
    ///
    /// # Errors
    ///
    /// It is no `audit.k8s.io/v1` `Policy`, has unknown fields, no rules or more than
    /// [`RULES_MAX`], an unknown level or stage, or a rule for both resources and paths.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        let file: File = KIND.parse(text.as_bytes())?;
        let n = file.rules.len();
        if n > RULES_MAX {
            let error = Error::too_many(Field::new("rules"), n, RULES_MAX);
            return Err(PolicyError::Invalid(error.to_string()));
        }
        let mut errors = Vec::new();
        let omit_stages = stages(&file.omit_stages, &Field::new("omitStages"), &mut errors);
        let path = Field::new("rules");
        let rules = file.rules.into_iter().enumerate();
        let rules: Vec<_> =
            rules.map(|(n, rule)| rule.check(&path.index(n), &mut errors)).collect();
        if !errors.is_empty() {
            return Err(PolicyError::Invalid(field::aggregate(&errors)));
        }
        if rules.is_empty() {
            return Err(PolicyError::Invalid("loaded illegal policy with 0 rules".to_owned()));
        }
        Ok(Self { rules, omit_stages, omit_managed_fields: file.omit_managed_fields })
    }

    /// The decision about a request of an authenticated user. `request`'s own user is
    /// another one if it is impersonated.
    pub fn verdict(&self, user: &Identity, request: &Attributes) -> Verdict<'_> {
        let rule = self.rules.iter().find(|rule| rule.matches(user, request));
        Verdict {
            level: rule.map_or(AuditLevel::None, |rule| rule.level),
            omits_managed_fields: rule
                .and_then(|rule| rule.omit_managed_fields)
                .unwrap_or(self.omit_managed_fields),
            rule,
            policy: self,
        }
    }
}

impl FileRule {
    /// The rule. Adds what is wrong to `errors`, in the words and the order of the reference.
    fn check(self, path: &Field, errors: &mut Vec<Error>) -> Rule {
        let at = path.child("level");
        let level = level_of(&self.level);
        if level.is_none() {
            errors.push(match &*self.level {
                "" => Error::required(at, ""),
                other => Error::not_supported(at, &other.into(), &LEVELS),
            });
        }
        self.check_urls(&path.child("nonResourceURLs"), errors);
        for resource in &self.resources {
            resource.check(&path.child("resources"), errors);
        }
        let omit_stages = stages(&self.omit_stages, &path.child("omitStages"), errors);
        let is_of_resources = !self.resources.is_empty() || !self.namespaces.is_empty();
        if is_of_resources && !self.non_resource_urls.is_empty() {
            let (at, urls) = (path.child("nonResourceURLs"), json!(self.non_resource_urls));
            let detail = "rules cannot apply to both regular resources and non-resource URLs";
            errors.push(Error::invalid(at, &urls, detail));
        }
        Rule {
            level: level.unwrap_or(AuditLevel::None),
            omit_stages,
            users: self.users,
            user_groups: self.user_groups,
            verbs: self.verbs,
            resources: self.resources,
            namespaces: self.namespaces,
            non_resource_urls: self.non_resource_urls,
            omit_managed_fields: self.omit_managed_fields,
        }
    }

    fn check_urls(&self, path: &Field, errors: &mut Vec<Error>) {
        for (n, url) in self.non_resource_urls.iter().enumerate() {
            let mut invalid = |detail: &str| {
                errors.push(Error::invalid(path.index(n), &url.as_str().into(), detail));
            };
            if url != "*" && !url.starts_with('/') {
                invalid("non-resource URL rules must begin with a '/' character");
            }
            if url.strip_suffix('*').unwrap_or(url).contains('*') {
                invalid("non-resource URL wildcards '*' must be the final character of the rule");
            }
        }
    }
}

/// The names of levels.
const LEVELS: [&str; 4] = ["None", "Metadata", "Request", "RequestResponse"];

fn level_of(name: &str) -> Option<AuditLevel> {
    Some(match name {
        "None" => AuditLevel::None,
        "Metadata" => AuditLevel::Metadata,
        "Request" => AuditLevel::Request,
        "RequestResponse" => AuditLevel::RequestResponse,
        _ => return None,
    })
}

/// The stages with these names. Adds unknown ones to `errors`.
fn stages(names: &[String], path: &Field, errors: &mut Vec<Error>) -> Vec<Stage> {
    const ALL: [Stage; 4] =
        [Stage::RequestReceived, Stage::ResponseStarted, Stage::ResponseComplete, Stage::Panic];
    let mut found = Vec::new();
    for (n, name) in names.iter().enumerate() {
        match ALL.into_iter().find(|stage| stage.as_str() == name) {
            Some(stage) => found.push(stage),
            None => {
                let detail = format!("allowed stages are {}", ALL.map(Stage::as_str).join(","));
                errors.push(Error::invalid(path.index(n), &name.as_str().into(), detail));
            }
        }
    }
    found
}

impl Rule {
    fn matches(&self, user: &Identity, request: &Attributes) -> bool {
        let is_any =
            |list: &[String], value: &str| list.is_empty() || list.iter().any(|one| one == value);
        is_any(&self.users, &user.user)
            && (self.user_groups.is_empty()
                || self.user_groups.iter().any(|group| user.is_in(group)))
            && is_any(&self.verbs, request.verb.as_str())
            && self.matches_subject(request)
    }

    fn matches_subject(&self, request: &Attributes) -> bool {
        if !self.resources.is_empty() || !self.namespaces.is_empty() {
            // A Namespace object is in its own namespace.
            let in_namespaces = self.namespaces.is_empty()
                || self.namespaces.iter().any(|one| one == request.scope());
            return request.is_resource()
                && in_namespaces
                && (self.resources.is_empty()
                    || self.resources.iter().any(|one| one.matches(request)));
        }
        if !self.non_resource_urls.is_empty() {
            let path = request.path();
            return !request.is_resource()
                && self.non_resource_urls.iter().any(|url| match url.strip_suffix('*') {
                    Some(prefix) => path.starts_with(prefix),
                    None => url == path,
                });
        }
        true
    }
}

impl GroupResources {
    fn check(&self, path: &Field, errors: &mut Vec<Error>) {
        if !self.group.is_empty() && self.group != "*" {
            let faults = dns1123_subdomain(&self.group);
            if !faults.is_empty() {
                let (at, group) = (path.child("group"), self.group.as_str().into());
                errors.push(Error::invalid(at, &group, faults.join(",")));
            }
        }
        if !self.resource_names.is_empty() && self.resources.is_empty() {
            let (at, names) = (path.child("resourceNames"), json!(self.resource_names));
            let detail = "using resourceNames requires at least one resource";
            errors.push(Error::invalid(at, &names, detail));
        }
    }

    fn matches(&self, request: &Attributes) -> bool {
        if self.group != "*" && self.group != request.group() {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        let names = &self.resource_names;
        if !names.is_empty() && !names.iter().any(|name| name == request.name()) {
            return false;
        }
        let resource = request.resource();
        let subresource = request.subresource().map_or("", |subresource| subresource.as_str());
        self.resources.iter().any(|one| match one.split_once('/') {
            None => one == "*" || (one == resource && subresource.is_empty()),
            Some(("*", of)) => !subresource.is_empty() && of == subresource,
            Some((of, "*")) => of == resource,
            Some((of, sub)) => of == resource && sub == subresource,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use setpoint_registry::{Requested, ResourcePath, Subresource, Verb};

    fn request(verb: &str, resource: &str, namespace: &str, name: &str) -> Attributes {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let path = ResourcePath {
            version: "v1".to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource: Subresource::of(subresource),
            ..ResourcePath::default()
        };
        Attributes::new(bob(), Verb::from(verb), Requested::Unrouted(path))
    }

    fn path(path: &str) -> Attributes {
        Attributes::new(bob(), Verb::Get, Requested::Path(path.to_owned()))
    }

    fn bob() -> Identity {
        Identity::new("bob", ["devs"])
    }

    fn policy(rules: &str) -> Policy {
        Policy::parse(&format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n{rules}"))
            .unwrap()
    }

    fn level(policy: &Policy, request: &Attributes) -> AuditLevel {
        policy.verdict(&bob(), request).level
    }

    #[test]
    fn the_first_matching_rule_counts() {
        let policy = policy(
            r#"
- {level: None, users: [eve]}
- {level: None, verbs: [watch]}
- {level: RequestResponse, resources: [{group: "", resources: [pods]}]}
- {level: Request, resources: [{group: "", resources: ["pods/*"]}], namespaces: [shop]}
- {level: Metadata, resources: [{group: "", resources: [secrets], resourceNames: [a]}]}
- {level: None, nonResourceURLs: ["/healthz*", /version]}
- {level: Metadata, userGroups: [devs], nonResourceURLs: ["/*"]}
"#,
        );
        for (request, expected) in [
            (request("watch", "pods", "", ""), AuditLevel::None),
            (request("get", "pods", "shop", "p"), AuditLevel::RequestResponse),
            (request("get", "pods/log", "shop", "p"), AuditLevel::Request),
            (request("get", "pods/log", "bank", "p"), AuditLevel::None),
            (request("get", "secrets", "shop", "a"), AuditLevel::Metadata),
            (request("get", "secrets", "shop", "b"), AuditLevel::None),
            (path("/healthz/ping"), AuditLevel::None),
            (path("/version"), AuditLevel::None),
            (path("/version/x"), AuditLevel::Metadata),
        ] {
            assert_eq!(level(&policy, &request), expected, "{request:?}");
        }
        let eve = Identity::new("eve", []);
        let verdict = policy.verdict(&eve, &request("get", "pods", "shop", "p"));
        assert_eq!(verdict.level, AuditLevel::None);
    }

    #[test]
    fn a_resource_without_a_slash_does_not_mean_its_subresources() {
        for (resources, allowed) in [
            ("pods", [true, false, false]),
            ("pods/log", [false, true, false]),
            ("*/log", [false, true, true]),
            ("pods/*", [true, true, false]),
            ("*", [true, true, true]),
        ] {
            let policy = policy(&format!(
                "- {{level: Metadata, resources: [{{resources: [\"{resources}\"]}}]}}"
            ));
            let found = ["pods", "pods/log", "jobs/log"].map(|resource| {
                level(&policy, &request("get", resource, "shop", "x")) == AuditLevel::Metadata
            });
            assert_eq!(found, allowed, "{resources}");
        }
    }

    #[test]
    fn a_star_is_every_group() {
        let deployment = |group: &str| {
            let path = ResourcePath {
                group: group.to_owned(),
                version: "v1".to_owned(),
                resource: "deployments".to_owned(),
                ..ResourcePath::default()
            };
            Attributes::new(bob(), Verb::List, Requested::Unrouted(path))
        };
        for (group, expected) in [("*", [true, true]), ("apps", [true, false])] {
            let policy = policy(&format!(
                "- {{level: Metadata, resources: [{{group: \"{group}\", resources: [deployments]}}]}}"
            ));
            let found = ["apps", "ex.io"].map(|of| level(&policy, &deployment(of)));
            assert_eq!(found.map(|level| level == AuditLevel::Metadata), expected, "{group}");
        }
    }

    #[test]
    fn a_namespace_is_in_itself() {
        let policy = policy("- {level: Metadata, namespaces: [shop]}");
        for (name, expected) in [("shop", AuditLevel::Metadata), ("bank", AuditLevel::None)] {
            assert_eq!(
                level(&policy, &request("get", "namespaces", name, name)),
                expected,
                "{name}"
            );
        }
    }

    #[test]
    fn stages_and_managed_fields_are_omitted() {
        let policy = Policy::parse(
            "{apiVersion: audit.k8s.io/v1, kind: Policy, omitStages: [RequestReceived], omitManagedFields: true,
              rules: [{level: Request, verbs: [get], omitStages: [Panic], omitManagedFields: false}, {level: Metadata}]}",
        )
        .unwrap();
        let request_get = request("get", "pods", "", "p");
        let verdict = policy.verdict(&bob(), &request_get);
        let stages = [Stage::RequestReceived, Stage::ResponseComplete, Stage::Panic];
        assert_eq!(stages.map(|stage| verdict.has(stage)), [false, true, false]);
        assert!(!verdict.omits_managed_fields);
        let request_list = request("list", "pods", "", "");
        let verdict = policy.verdict(&bob(), &request_list);
        assert_eq!(stages.map(|stage| verdict.has(stage)), [false, true, true]);
        assert!(verdict.omits_managed_fields);
    }

    #[test]
    fn bad_policies_are_refused_with_the_place() {
        let parse = |text: &str| Policy::parse(text).unwrap_err().to_string();
        let head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n";
        let rules = |rules: &str| parse(&format!("{head}rules: [{rules}]"));
        for (text, why) in [
            (
                "kind: Policy\napiVersion: v1",
                r#"no kind "Policy" is registered for version "v1": expected Policy in audit.k8s.io/v1"#,
            ),
            (head, "the audit policy is invalid: loaded illegal policy with 0 rules"),
            (
                &format!("{head}rules: [{{level: None, user: [x]}}]"),
                r#"unknown field "rules[0].user""#,
            ),
            (&format!("{head}metadata: {{}}\nrule: []"), r#"unknown field "rule""#),
            (
                &format!("{head}omitStages: [Start]\nrules: [{{}}]"),
                r#"[omitStages[0]: Invalid value: "Start": allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic, rules[0].level: Required value]"#,
            ),
        ] {
            let error = parse(text);
            assert!(error.contains(why), "{text}: {error}");
        }
        for (rule, why) in [
            (
                "{level: Loud}",
                r#"rules[0].level: Unsupported value: "Loud": supported values: "None", "Metadata", "Request", "RequestResponse""#,
            ),
            (
                "{level: None, omitStages: [Panic, End]}",
                r#"rules[0].omitStages[1]: Invalid value: "End": allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic"#,
            ),
            (
                "{level: None, nonResourceURLs: [/, x]}",
                r#"rules[0].nonResourceURLs[1]: Invalid value: "x": non-resource URL rules must begin with a '/' character"#,
            ),
            (
                "{level: None, nonResourceURLs: [/a*b]}",
                r#"rules[0].nonResourceURLs[0]: Invalid value: "/a*b": non-resource URL wildcards '*' must be the final character of the rule"#,
            ),
            (
                "{level: None, namespaces: [x], nonResourceURLs: [/a]}",
                r#"rules[0].nonResourceURLs: Invalid value: ["/a"]: rules cannot apply to both regular resources and non-resource URLs"#,
            ),
            (
                "{level: None, resources: [{resourceNames: [x]}]}",
                r#"rules[0].resources.resourceNames: Invalid value: ["x"]: using resourceNames requires at least one resource"#,
            ),
            (
                "{level: None, resources: [{group: apps/v1}]}",
                r#"rules[0].resources.group: Invalid value: "apps/v1": a lowercase RFC 1123 subdomain must consist of"#,
            ),
        ] {
            let error = rules(rule);
            let expected = format!("the audit policy is invalid: {why}");
            assert!(error.starts_with(&expected), "{rule}: {error}");
        }
    }

    #[test]
    fn members_without_a_value_are_absent() {
        let text = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages:\nrules:\n- level: Metadata\n  users:\n  resources:\n  - group:\n    resources: [pods]\n  omitManagedFields:\n";
        let policy = Policy::parse(text).unwrap();
        assert_eq!(level(&policy, &request("get", "pods", "shop", "p")), AuditLevel::Metadata);
        assert_eq!(level(&policy, &request("get", "jobs", "shop", "p")), AuditLevel::None);
    }

    proptest! {
        #[test]
        fn any_text_is_a_policy_or_an_error(text in "\\PC*") {
            let _ = Policy::parse(&text);
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_file_without_an_end_is_too_long() {
        let refused = Policy::read(Path::new("/dev/zero"));
        assert!(matches!(refused, Err(PolicyError::TooLong { .. })), "{refused:?}");
    }
}
