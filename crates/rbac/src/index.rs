//! Roles and bindings by subject.

use crate::rule::{Request, Rule, rules_of};
use serde_json::Value;
use setpoint_object::error::aggregate;
use setpoint_object::field::quote;
use setpoint_object::users;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

/// The user of a request.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a, G = &'a str> {
    /// User name.
    pub user: &'a str,
    /// Groups.
    pub groups: &'a [G],
}

/// The result of a decision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Why the request is allowed; `None` if no rule allows it.
    pub allowed: Option<String>,
    /// Roles that bindings of the user name and that do not exist, each once.
    pub missing_roles: Vec<MissingRole>,
}

/// A role that a binding names and that does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingRole {
    /// Whether it would be a ClusterRole.
    pub is_cluster: bool,
    /// Its name.
    pub name: Box<str>,
}

impl fmt::Display for MissingRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resource = if self.is_cluster { "clusterrole" } else { "role" };
        write!(f, "{resource}.rbac.authorization.k8s.io {} not found", quote(&self.name))
    }
}

impl Verdict {
    /// The reason of a refusal: the missing roles, empty if there are none.
    pub fn refusal(&self) -> String {
        match &self.missing_roles[..] {
            [] => String::new(),
            missing => {
                let texts: Vec<String> = missing.iter().map(MissingRole::to_string).collect();
                format!("RBAC: {}", aggregate(&texts))
            }
        }
    }
}

/// Roles and bindings, kept by the changes of their objects. Its size is that of the objects; a
/// clone shares rules and subjects.
#[derive(Debug, Default, Clone)]
pub struct Index {
    cluster_roles: Roles,
    roles: HashMap<Box<str>, Roles>,
    cluster_bindings: Bindings,
    bindings: HashMap<Box<str>, Bindings>,
}

/// The rules of roles by name.
type Roles = HashMap<Box<str>, Arc<[Rule]>>;

/// The bindings of one scope.
#[derive(Debug, Default, Clone)]
struct Bindings {
    by_name: HashMap<Box<str>, Arc<Binding>>,
    by_user: BySubject,
    by_group: BySubject,
}

/// Bindings by user or group, in order of their names, so that every answer names the same one.
type BySubject = HashMap<Box<str>, BTreeMap<Box<str>, Arc<Binding>>>;

#[derive(Debug)]
struct Binding {
    role: RoleName,
    subjects: Vec<Bound>,
}

/// The role that a binding gives.
#[derive(Debug)]
struct RoleName {
    is_cluster: bool,
    name: Box<str>,
}

/// A subject of a binding.
#[derive(Debug)]
struct Bound {
    is_group: bool,
    /// User or group.
    name: Box<str>,
    /// As messages show it: `User "jane"`.
    shown: Box<str>,
}

impl Index {
    /// Adds or replaces a role. `namespace` is empty for a ClusterRole.
    pub fn put_role(&mut self, namespace: &str, name: &str, role: &Value) {
        let rules: Arc<[Rule]> = rules_of(role).into();
        match namespace {
            "" => self.cluster_roles.insert(name.into(), rules),
            namespace => self.roles.entry(namespace.into()).or_default().insert(name.into(), rules),
        };
    }

    /// Removes a role.
    pub fn delete_role(&mut self, namespace: &str, name: &str) {
        if namespace.is_empty() {
            self.cluster_roles.remove(name);
        } else if let Some(roles) = self.roles.get_mut(namespace) {
            roles.remove(name);
            if roles.is_empty() {
                self.roles.remove(namespace);
            }
        }
    }

    /// Adds or replaces a binding. `namespace` is empty for a ClusterRoleBinding.
    pub fn put_binding(&mut self, namespace: &str, name: &str, binding: &Value) {
        let text = |value: &Value, member: &str| {
            value.get(member).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let role = &binding["roleRef"];
        let role = RoleName {
            is_cluster: namespace.is_empty() || text(role, "kind") == "ClusterRole",
            name: text(role, "name").into(),
        };
        let bound = |subject: &Value| {
            let (kind, name) = (text(subject, "kind"), text(subject, "name"));
            let shown = format!("{kind} {}", quote(&name)).into();
            match &*kind {
                "User" | "Group" => {
                    Some(Bound { is_group: kind == "Group", name: name.into(), shown })
                }
                "ServiceAccount" => {
                    let own = text(subject, "namespace");
                    let own = if own.is_empty() { namespace } else { &own };
                    // Without a namespace it is not a valid subject.
                    (!own.is_empty()).then(|| Bound {
                        is_group: false,
                        name: users::service_account(own, &name).into(),
                        shown: format!("ServiceAccount {}", quote(&format!("{name}/{own}"))).into(),
                    })
                }
                _ => None,
            }
        };
        let subjects = binding.get("subjects").and_then(Value::as_array);
        let subjects = subjects.into_iter().flatten().filter_map(bound).collect();
        let binding = Arc::new(Binding { role, subjects });
        let bindings = match namespace {
            "" => &mut self.cluster_bindings,
            namespace => self.bindings.entry(namespace.into()).or_default(),
        };
        bindings.put(name, binding);
    }

    /// Removes a binding.
    pub fn delete_binding(&mut self, namespace: &str, name: &str) {
        if namespace.is_empty() {
            self.cluster_bindings.delete(name);
        } else if let Some(bindings) = self.bindings.get_mut(namespace) {
            bindings.delete(name);
            if bindings.by_name.is_empty() {
                self.bindings.remove(namespace);
            }
        }
    }

    /// The rules of a role; `None` if it does not exist.
    pub fn role(&self, namespace: &str, is_cluster: bool, name: &str) -> Option<Arc<[Rule]>> {
        match is_cluster {
            true => self.cluster_roles.get(name).cloned(),
            false => self.roles.get(namespace)?.get(name).cloned(),
        }
    }

    /// Decides a request in a namespace; empty for cluster scope.
    pub fn decide<G: AsRef<str>>(
        &self,
        subject: &Subject<'_, G>,
        namespace: &str,
        request: &Request<'_>,
    ) -> Verdict {
        let (mut allowed, mut missing) = (None, MissingRoles::default());
        self.visit(subject, namespace, |found| {
            let Some(rules) = found.rules else {
                missing.add(found);
                return true;
            };
            if rules.iter().any(|rule| rule.allows(request)) {
                allowed = Some(found.reason(subject));
            }
            allowed.is_none()
        });
        Verdict { allowed, missing_roles: missing.roles }
    }

    /// The rules that a user holds in a namespace, of all bindings in turn; empty for cluster
    /// scope.
    pub fn rules<G: AsRef<str>>(
        &self,
        subject: &Subject<'_, G>,
        namespace: &str,
    ) -> Vec<Arc<[Rule]>> {
        let mut all = Vec::new();
        self.visit(subject, namespace, |found| {
            all.extend(found.rules.cloned());
            true
        });
        all
    }

    /// The roles that bindings of a user name in a namespace and that do not exist, each once;
    /// empty for cluster scope.
    pub fn missing_roles<G: AsRef<str>>(
        &self,
        subject: &Subject<'_, G>,
        namespace: &str,
    ) -> Vec<MissingRole> {
        let mut missing = MissingRoles::default();
        self.visit(subject, namespace, |found| {
            if found.rules.is_none() {
                missing.add(found);
            }
            true
        });
        missing.roles
    }

    /// Calls `each` for the bindings of a user while it returns true, once for each: those of the
    /// cluster, then those of the namespace.
    fn visit<G: AsRef<str>>(
        &self,
        subject: &Subject<'_, G>,
        namespace: &str,
        mut each: impl FnMut(&Found<'_>) -> bool,
    ) {
        // Bindings with several subjects, of which more than one may be of the user.
        let mut seen: HashSet<*const Binding> = HashSet::new();
        let of_namespace = self.bindings.get(namespace).map(|bindings| (namespace, bindings));
        for (namespace, bindings) in [("", &self.cluster_bindings)].into_iter().chain(of_namespace)
        {
            let of_user = (false, subject.user);
            let of_groups = subject.groups.iter().map(|group| (true, group.as_ref()));
            for (is_group, who) in [of_user].into_iter().chain(of_groups) {
                let by = if is_group { &bindings.by_group } else { &bindings.by_user };
                for (name, binding) in by.get(who).into_iter().flatten() {
                    if binding.subjects.len() > 1 && !seen.insert(Arc::as_ptr(binding)) {
                        continue;
                    }
                    let RoleName { is_cluster, name: role } = &binding.role;
                    let rules = match is_cluster {
                        true => self.cluster_roles.get(role),
                        false => self.roles.get(namespace).and_then(|roles| roles.get(role)),
                    };
                    if !each(&Found { namespace, name, binding, rules }) {
                        return;
                    }
                }
            }
        }
    }
}

/// A binding of a user.
struct Found<'i> {
    namespace: &'i str,
    name: &'i str,
    binding: &'i Binding,
    rules: Option<&'i Arc<[Rule]>>,
}

impl Found<'_> {
    /// Why a rule of its role allows something, with the first of the binding's subjects that is
    /// the user or one of the groups.
    fn reason<G: AsRef<str>>(&self, subject: &Subject<'_, G>) -> String {
        let RoleName { is_cluster, name: role } = &self.binding.role;
        let binding = match self.namespace {
            "" => format!("ClusterRoleBinding {}", quote(self.name)),
            namespace => format!("RoleBinding {}", quote(&format!("{}/{namespace}", self.name))),
        };
        let kind = if *is_cluster { "ClusterRole" } else { "Role" };
        let shown = match &self.binding.subjects[..] {
            [one] => &*one.shown,
            many => {
                let groups: HashSet<&str> = subject.groups.iter().map(AsRef::as_ref).collect();
                let is_of_user = |bound: &&Bound| match bound.is_group {
                    true => groups.contains(&*bound.name),
                    false => *bound.name == *subject.user,
                };
                many.iter().find(is_of_user).map_or("", |bound| &*bound.shown)
            }
        };
        format!("RBAC: allowed by {binding} of {kind} {} to {shown}", quote(role))
    }
}

/// Missing roles, each once, in the order in which they were found.
#[derive(Debug, Default)]
struct MissingRoles {
    roles: Vec<MissingRole>,
    seen: HashSet<(bool, Box<str>)>,
}

impl MissingRoles {
    fn add(&mut self, found: &Found<'_>) {
        let RoleName { is_cluster, name } = &found.binding.role;
        if self.seen.insert((*is_cluster, name.clone())) {
            self.roles.push(MissingRole { is_cluster: *is_cluster, name: name.clone() });
        }
    }
}

impl Bindings {
    fn put(&mut self, name: &str, binding: Arc<Binding>) {
        self.delete(name);
        for bound in &binding.subjects {
            self.of(bound)
                .entry(bound.name.clone())
                .or_default()
                .insert(name.into(), binding.clone());
        }
        self.by_name.insert(name.into(), binding);
    }

    fn delete(&mut self, name: &str) {
        let Some(binding) = self.by_name.remove(name) else { return };
        for bound in &binding.subjects {
            let by = self.of(bound);
            if let Some(named) = by.get_mut(&bound.name) {
                named.remove(name);
                if named.is_empty() {
                    by.remove(&bound.name);
                }
            }
        }
    }

    fn of(&mut self, bound: &Bound) -> &mut BySubject {
        if bound.is_group { &mut self.by_group } else { &mut self.by_user }
    }
}

#[cfg(test)]
mod tests;
