//! Attribute-based access control: the policies of a file that is read once, at the start
//! (kube-apiserver: `--authorization-mode=ABAC`, `--authorization-policy-file`).
//!
//! The file has one policy a line, in JSON. Empty lines and lines that begin with `#` are skipped.
//!
//! ```text
//! {"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {"user": "alice", "namespace": "*", "resource": "*", "apiGroup": "*"}}
//! {"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {"group": "devs", "readonly": true, "nonResourcePath": "*"}}
//! ```
//!
//! A policy allows a request if its subject, its verbs, and its resource or path match. Every
//! member that is not empty counts:
//!
//! | member | matches |
//! |---|---|
//! | `user`, `group` | the user, and one of its groups; a policy without both matches nobody. `*` in one of them: every authenticated user |
//! | `readonly` | if true, only `get`, `list` and `watch` |
//! | `namespace`, `resource`, `apiGroup` | those of the request, all three, with any subresource; `*`: every |
//! | `nonResourcePath` | the path; `*` at its end: any rest |
//!
//! A line without `apiVersion` is a policy of version `v0`, whose members are beside each other
//! instead of in `spec`. There, an empty member matches everything. What no policy allows is left
//! to the next authorizer.

use futures::future::{BoxFuture, FutureExt as _};
use serde::Deserialize;
use setpoint_object::ApiError;
use setpoint_object::users::AUTHENTICATED;
use setpoint_registry::{Attributes, Authorizer, Decision, Identity, Rule, Verb};
use setpoint_small_file::SmallFileError;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum size of a policy file in bytes: 1 MiB.
pub const FILE_BYTES_MAX: usize = 1 << 20;
/// Maximum number of policies of a file: 10,000. A request is compared with each.
pub const POLICIES_MAX: usize = 10_000;

const GROUP: &str = "abac.authorization.kubernetes.io";
const KIND: &str = "Policy";
/// How much of a line an error shows, in characters.
const SHOWN_MAX: usize = 200;

/// Why a policy file is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AbacError {
    /// The file cannot be read.
    #[error("error reading policy file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// More than [`FILE_BYTES_MAX`] bytes.
    #[error("error reading policy file {}: more than {FILE_BYTES_MAX} bytes", .0.display())]
    TooLarge(PathBuf),
    /// A line is no policy.
    #[error("error reading policy file {}, line {number}: {line}: {reason}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Its number; the first is 1.
        number: usize,
        /// Its beginning.
        line: String,
        /// What is wrong.
        reason: String,
    },
    /// More than [`POLICIES_MAX`] policies.
    #[error("error reading policy file {}: more than {POLICIES_MAX} policies", .0.display())]
    TooMany(PathBuf),
}

/// The policies of a file, as an authorizer.
#[derive(Debug)]
pub struct Abac {
    policies: Vec<Policy>,
    has_former: bool,
}

/// One policy with its rules.
#[derive(Debug)]
struct Policy {
    spec: Spec,
    rules: Arc<[Rule]>,
}

/// The members of a policy. `null` is an empty member.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Members {
    user: Option<String>,
    group: Option<String>,
    readonly: Option<bool>,
    api_group: Option<String>,
    resource: Option<String>,
    namespace: Option<String>,
    non_resource_path: Option<String>,
}

/// What a policy matches.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Spec {
    user: String,
    group: String,
    readonly: bool,
    api_group: String,
    resource: String,
    namespace: String,
    path: String,
}

/// A line of version `v1beta1`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Document {
    spec: Option<Members>,
}

/// What a line says of its version and kind.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct TypeMeta {
    api_version: Option<String>,
    kind: Option<String>,
}

impl Abac {
    /// Reads a file of policies.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is too large, or has a line that is no policy.
    pub fn load(path: &Path) -> Result<Self, AbacError> {
        let document = setpoint_small_file::read(path, FILE_BYTES_MAX);
        let document = document.map_err(|error| match error {
            SmallFileError::Read { path, source } => AbacError::Read { path, source },
            SmallFileError::TooLong { path, .. } => AbacError::TooLarge(path),
        });
        Self::parse(path, &document?)
    }

    /// Reads the lines of a file. `path` is only named in errors.
    fn parse(path: &Path, document: &[u8]) -> Result<Self, AbacError> {
        let mut this = Self { policies: Vec::new(), has_former: false };
        for (i, line) in document.split(|byte| *byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            if this.policies.len() == POLICIES_MAX {
                return Err(AbacError::TooMany(path.to_owned()));
            }
            let spec = this.spec(line).map_err(|reason| AbacError::Line {
                path: path.to_owned(),
                number: i + 1,
                line: String::from_utf8_lossy(line).chars().take(SHOWN_MAX).collect(),
                reason,
            })?;
            this.policies.push(Policy { rules: spec.rules(), spec });
        }
        Ok(this)
    }

    fn spec(&mut self, line: &[u8]) -> Result<Spec, String> {
        fn read<'a, T: Deserialize<'a>>(line: &'a [u8]) -> Result<T, String> {
            serde_json::from_slice(line).map_err(|error| error.to_string())
        }
        let meta: TypeMeta = read(line)?;
        let (version, kind) = (meta.api_version.unwrap_or_default(), meta.kind.unwrap_or_default());
        let own = version.strip_prefix(GROUP).and_then(|rest| rest.strip_prefix('/'));
        match (&*version, own, &*kind) {
            (_, Some("v1beta1"), KIND) => {
                let document: Document = read(line)?;
                Ok(Spec::new(document.spec.unwrap_or_default()))
            }
            ("", _, "" | KIND) | (_, Some("v0"), "" | KIND) => {
                self.has_former |= version.is_empty() || kind.is_empty();
                Ok(Spec::former(read(line)?))
            }
            ("", ..) => Err(format!(r#"no kind {kind:?} is registered for version "{GROUP}/v0""#)),
            _ => Err(format!("no kind {kind:?} is registered for version {version:?}")),
        }
    }

    /// Whether a line has no version, of which kube-apiserver warns.
    pub fn has_unversioned(&self) -> bool {
        self.has_former
    }

    fn decide(&self, request: &Attributes) -> Decision {
        match self.policies.iter().any(|policy| policy.spec.allows(request)) {
            true => Decision::Allow(String::new()),
            false => Decision::NoOpinion("No policy matched.".to_owned()),
        }
    }
}

impl Authorizer for Abac {
    fn authorize<'a>(
        &'a self,
        request: &'a Attributes,
    ) -> BoxFuture<'a, Result<Decision, ApiError>> {
        async move { Ok(self.decide(request)) }.boxed()
    }

    fn decides_health(&self) -> bool {
        true
    }

    fn kind(&self) -> (&str, &str) {
        ("ABAC", "abac")
    }

    fn rules(&self, identity: &Identity, namespace: &str) -> Option<Vec<Arc<[Rule]>>> {
        let held = self.policies.iter().filter(|policy| {
            let spec = &policy.spec;
            spec.is_about(identity) && (spec.namespace == "*" || spec.namespace == namespace)
        });
        Some(held.map(|policy| policy.rules.clone()).collect())
    }
}

impl Spec {
    fn new(members: Members) -> Self {
        Self {
            user: members.user.unwrap_or_default(),
            group: members.group.unwrap_or_default(),
            readonly: members.readonly.unwrap_or_default(),
            api_group: members.api_group.unwrap_or_default(),
            resource: members.resource.unwrap_or_default(),
            namespace: members.namespace.unwrap_or_default(),
            path: members.non_resource_path.unwrap_or_default(),
        }
        .with_everybody()
    }

    /// That of a policy of version `v0`, in which an empty member matches everything.
    fn former(members: Members) -> Self {
        // These members are younger than the version.
        let members = Members { api_group: None, non_resource_path: None, ..members };
        let mut spec = Self::new(members);
        if spec.user.is_empty() && spec.group.is_empty() {
            spec.group = AUTHENTICATED.to_owned();
        }
        if spec.namespace.is_empty() && spec.resource.is_empty() {
            spec.path = "*".to_owned();
        }
        for member in [&mut spec.namespace, &mut spec.resource, &mut spec.api_group] {
            if member.is_empty() {
                *member = "*".to_owned();
            }
        }
        spec
    }

    /// `*` as user or group is every authenticated user.
    fn with_everybody(mut self) -> Self {
        if self.user == "*" || self.group == "*" {
            self.group = AUTHENTICATED.to_owned();
            self.user.clear();
        }
        self
    }

    fn rules(&self) -> Arc<[Rule]> {
        let verbs: Vec<String> = match self.readonly {
            true => ["get", "list", "watch"].map(str::to_owned).to_vec(),
            false => vec!["*".to_owned()],
        };
        let mut rules = Vec::new();
        if !self.resource.is_empty() {
            rules.push(Rule {
                verbs: verbs.clone(),
                api_groups: vec![self.api_group.clone()],
                resources: vec![self.resource.clone()],
                ..Rule::default()
            });
        }
        if !self.path.is_empty() {
            let urls = vec![self.path.clone()];
            rules.push(Rule { verbs, non_resource_urls: urls, ..Rule::default() });
        }
        rules.into()
    }

    fn is_about(&self, identity: &Identity) -> bool {
        let has_user = self.user.is_empty() || *self.user == *identity.user;
        let has_group = self.group.is_empty() || identity.is_in(&self.group);
        has_user && has_group && !(self.user.is_empty() && self.group.is_empty())
    }

    fn allows(&self, request: &Attributes) -> bool {
        if !self.is_about(&request.identity) {
            return false;
        }
        if self.readonly && !matches!(request.verb, Verb::Get | Verb::List | Verb::Watch) {
            return false;
        }
        let is = |own: &str, given: &str| own == "*" || own == given;
        if request.is_resource() {
            return is(&self.namespace, request.scope())
                && is(&self.resource, request.resource())
                && is(&self.api_group, request.group());
        }
        let start = self.path.trim_end_matches('*');
        self.path == request.path()
            || (self.path.ends_with('*') && request.path().starts_with(start))
    }
}

#[cfg(test)]
mod tests;
