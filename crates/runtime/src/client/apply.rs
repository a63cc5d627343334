//! Server-side apply: sets some fields of an object and leaves the others (CLI-6).

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube_core::{
    Resource,
    params::{Patch, PatchParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};
use setpoint_apply::{HasPartial, MemberError, Members, Partial, without_nulls};
use setpoint_informer::Cacheable;

use super::{Api, Call, ClientError, Subresource, api::decode};
use crate::{
    owner::{OwnerError, check_scope_in, controller_reference},
    request::Request,
};

/// A server-side apply of one object. The named fields get these values and belong to this client;
/// all others are unchanged.
///
/// The server records the fields that a manager applied. A field that the manager leaves out the
/// next time is removed, unless another manager owns it too.
///
/// ```no_run
/// # use k8s_openapi::api::apps::v1::Deployment;
/// # use setpoint_runtime::{Apply, Client, ClientError, Request};
/// # async fn example(client: &Client) -> Result<(), ClientError> {
/// let apply = Apply::<Deployment>::new(&Request::new("default", "web"))
///     .label("app", "web")
///     .fields(|deployment| {
///         deployment.spec(|spec| {
///             spec.replicas(3).selector(|selector| selector.match_labels([("app", "web")]))
///         })
///     })
///     .force();
/// client.api::<Deployment>().apply(&apply).await?;
/// # Ok(())
/// # }
/// ```
///
/// # Fields
///
/// | method | checks | for |
/// |---|---|---|
/// | [`fields`](Self::fields) | names and types of fields, when it is compiled | built-in types (feature `apply` of `setpoint`), custom types with `#[derive(Partial)]` |
/// | [`label`](Self::label), [`controlled_by`](Self::controlled_by), … | the same | metadata of all types |
/// | [`set`](Self::set), [`member`](Self::member), [`partial`](Self::partial) | nothing; the server does | types known at run time |
///
/// # Unset fields
///
/// Fields that are null, or optional members that are `None`, are left out. A type of `k8s-openapi`
/// always serializes its *required* members, even empty ones, so passing one ([`spec`](Self::spec),
/// [`partial`](Self::partial)) claims them. Your own struct with `Option` members, `json!`, or
/// [`set`](Self::set) claims only what it names.
///
/// Invalid values, such as one that cannot be serialized, are reported when it is applied.
#[must_use = "nothing is applied before `Api::apply`"]
pub struct Apply<K> {
    key: Request,
    members: Map<String, Value>,
    params: PatchParams,
    mistake: Option<ApplyError>,
    of: std::marker::PhantomData<fn() -> K>,
}

/// Why something cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// A value cannot be serialized, or has the wrong type.
    #[error("{path}: {why}")]
    Value {
        /// The path of the value.
        path: String,
        /// The reason.
        why: String,
    },
    /// A path does not begin with `/`, or leads through a value without members.
    #[error("{path:?} is not a path to a member of an object")]
    Path {
        /// The path.
        path: String,
    },
    /// A partial object is of another kind or has another name.
    #[error("expected {is}, found {says}")]
    Other {
        /// The kind or name in the partial object.
        says: String,
        /// The kind or name that it is applied to.
        is: String,
    },
}

impl<K> Clone for Apply<K> {
    fn clone(&self) -> Self {
        Self {
            key: self.key.clone(),
            members: self.members.clone(),
            params: self.params.clone(),
            mistake: self.mistake.clone(),
            of: self.of,
        }
    }
}

impl<K> fmt::Debug for Apply<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Apply")
            .field("key", &self.key)
            .field("members", &self.members)
            .finish_non_exhaustive()
    }
}

impl<K: Resource> Apply<K> {
    /// An empty apply of the object with this key, of a type known at compile time.
    pub fn new(key: &Request) -> Self
    where
        K::DynamicType: Default,
    {
        Self::dynamic(key, &K::DynamicType::default())
    }

    /// An empty apply of the object with this key, of a type known at run time.
    pub fn dynamic(key: &Request, dynamic_type: &K::DynamicType) -> Self {
        let mut metadata = Map::from_iter([("name".to_owned(), (*key.name).into())]);
        if let Some(namespace) = key.namespace_opt() {
            metadata.insert("namespace".to_owned(), namespace.into());
        }
        let members = Map::from_iter([
            ("apiVersion".to_owned(), K::api_version(dynamic_type).into()),
            ("kind".to_owned(), K::kind(dynamic_type).into()),
            ("metadata".to_owned(), metadata.into()),
        ]);
        let params = PatchParams::default();
        Self { key: key.clone(), members, params, mistake: None, of: std::marker::PhantomData }
    }

    /// Sets fields by typed setters: a field that is misspelt, or has another type, does not
    /// compile. Only the fields that are set are sent. See [`setpoint_apply`] for the setters.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use setpoint_runtime::{Apply, Request};
    /// let apply = Apply::<ConfigMap>::new(&Request::new("default", "settings"))
    ///     .fields(|config| config.data([("a", "1")]));
    /// assert_eq!(apply.body().unwrap()["data"], serde_json::json!({"a": "1"}));
    /// ```
    ///
    /// ```compile_fail,E0599
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use setpoint_runtime::{Apply, Request};
    /// let apply = Apply::<ConfigMap>::new(&Request::new("default", "settings"))
    ///     .fields(|config| config.dato([("a", "1")]));
    /// ```
    pub fn fields(mut self, set: impl FnOnce(K::Partial) -> K::Partial) -> Self
    where
        K: HasPartial,
    {
        let mut members = std::mem::take(&mut self.members);
        let kind = ["apiVersion", "kind"].map(|name| members.remove_entry(name));
        let partial = set(Partial::from_members(Members::from_json(members)));
        let (members, error) = partial.into_members().into_json();
        self.members = members;
        self.members.extend(kind.into_iter().flatten());
        if let Some(MemberError { path, why, .. }) = error {
            return self.mistaken(ApplyError::Value { path, why });
        }
        let other = [("name", &self.key.name), ("namespace", &self.key.namespace)];
        let other = other.into_iter().find_map(|(name, is)| {
            let says = self.members.get("metadata").and_then(|metadata| metadata.get(name));
            let says = says.and_then(Value::as_str).unwrap_or_default();
            let (is_other, says) = (says != &**is, format!("{says:?}"));
            is_other.then(|| ApplyError::Other { says, is: format!("{is:?}") })
        });
        match other {
            Some(other) => self.mistaken(other),
            None => self,
        }
    }

    /// Adds the fields of a partial object: your own struct with some members. `metadata` and kind
    /// may be among them.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use setpoint_runtime::{Apply, Request};
    /// #[derive(serde::Serialize)]
    /// struct Settings<'a> {
    ///     data: std::collections::BTreeMap<&'a str, Option<&'a str>>,
    /// }
    /// let settings = Settings { data: [("a", Some("1")), ("b", None)].into() };
    /// let apply = Apply::<ConfigMap>::new(&Request::new("default", "settings")).partial(&settings);
    /// assert_eq!(apply.body().unwrap()["data"], serde_json::json!({"a": "1"}));
    /// ```
    pub fn partial(mut self, partial: &(impl Serialize + ?Sized)) -> Self {
        let Some(Value::Object(members)) = self.encoded("/", partial) else {
            return self.mistaken(ApplyError::Path { path: "/".to_owned() });
        };
        for (name, value) in members {
            match (&*name, &value) {
                ("apiVersion" | "kind", value) if self.members[&name] != *value => {
                    let [says, is] = [value, &self.members[&name]].map(ToString::to_string);
                    return self.mistaken(ApplyError::Other { says, is });
                }
                ("metadata", Value::Object(members)) => {
                    for (name, value) in members {
                        let is = match &**name {
                            "name" => &*self.key.name,
                            "namespace" => &*self.key.namespace,
                            _ => {
                                self = self.at(&["metadata", name], value.clone());
                                continue;
                            }
                        };
                        if *value != is {
                            let (says, is) = (value.to_string(), format!("{is:?}"));
                            return self.mistaken(ApplyError::Other { says, is });
                        }
                    }
                }
                _ => _ = self.members.insert(name, value),
            }
        }
        self
    }

    /// Sets a label.
    pub fn label(self, key: &str, value: impl Into<String>) -> Self {
        self.at(&["metadata", "labels", key], value.into().into())
    }

    /// Sets several labels.
    pub fn labels<N: AsRef<str>, V: Into<String>>(
        self,
        labels: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        labels.into_iter().fold(self, |apply, (key, value)| apply.label(key.as_ref(), value))
    }

    /// Sets an annotation.
    pub fn annotation(self, key: &str, value: impl Into<String>) -> Self {
        self.at(&["metadata", "annotations", key], value.into().into())
    }

    /// Adds a finalizer.
    pub fn finalizer(self, name: &str) -> Self {
        self.push("finalizers", name.into())
    }

    /// Adds an owner reference; see [`owner_reference`](crate::owner_reference) and
    /// [`controller_reference`](crate::controller_reference). A reference does not say in which
    /// namespace the owner is; [`controlled_by`](Self::controlled_by) checks that, too.
    pub fn owner(mut self, reference: &OwnerReference) -> Self {
        match self.encoded("/metadata/ownerReferences", reference) {
            Some(reference) => self.push("ownerReferences", reference),
            None => self,
        }
    }

    /// Makes `owner` the controller: [`owner`](Self::owner) of its
    /// [`controller_reference`](crate::controller_reference). It knows both, so it refuses an owner
    /// that this object cannot have.
    ///
    /// # Errors
    ///
    /// The owner has not been created, or is in another namespace: the garbage collector would
    /// delete the object.
    pub fn controlled_by<O: Resource + 'static>(
        self,
        owner: &O,
        owner_type: &O::DynamicType,
    ) -> Result<Self, OwnerError>
    where
        K: 'static,
    {
        check_scope_in::<O, K>(owner, self.key.namespace_opt())?;
        let reference = controller_reference(owner, owner_type)?;
        Ok(self.owner(&reference))
    }

    /// Sets the spec. Every serialized member is claimed.
    pub fn spec(self, spec: impl Serialize) -> Self {
        self.member("spec", spec)
    }

    /// Sets the status, for [`Subresource::apply`].
    pub fn status(self, status: impl Serialize) -> Self {
        self.member("status", status)
    }

    /// Sets a top-level member, such as `data`. Every serialized member of it is claimed.
    pub fn member(mut self, name: &str, value: impl Serialize) -> Self {
        match self.encoded(name, &value) {
            Some(value) if !value.is_null() => self.at(&[name], value),
            _ => self,
        }
    }

    /// Sets the member at a JSON pointer (RFC 6901), such as `/spec/replicas`. Missing parents are
    /// created.
    pub fn set(mut self, pointer: &str, value: impl Serialize) -> Self {
        let Some(path) = pointer.strip_prefix('/') else {
            return self.mistaken(ApplyError::Path { path: pointer.to_owned() });
        };
        let Some(value) = self.encoded(pointer, &value) else { return self };
        if value.is_null() {
            return self;
        }
        let path: Vec<String> =
            path.split('/').map(|part| part.replace("~1", "/").replace("~0", "~")).collect();
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        self.at(&path, value)
    }

    /// Takes over fields that other managers own with other values. Otherwise they are a conflict.
    /// Controllers should force.
    pub fn force(mut self) -> Self {
        self.params.force = true;
        self
    }

    /// Uses this field manager instead of the client's.
    pub fn field_manager(mut self, name: impl Into<String>) -> Self {
        self.params.field_manager = Some(name.into());
        self
    }

    /// Validates on the server and changes nothing.
    pub fn dry_run(mut self) -> Self {
        self.params.dry_run = true;
        self
    }

    /// The object's key.
    pub fn key(&self) -> &Request {
        &self.key
    }

    /// The body of the request.
    ///
    /// # Errors
    ///
    /// The first invalid value.
    pub fn body(&self) -> Result<Value, ApplyError> {
        match &self.mistake {
            Some(mistake) => Err(mistake.clone()),
            None => Ok(Value::Object(self.members.clone())),
        }
    }

    fn at(self, path: &[&str], value: Value) -> Self {
        self.change(path, |member| *member = value)
    }

    /// Appends to a list of the metadata.
    fn push(self, list: &str, value: Value) -> Self {
        self.change(&["metadata", list], |member| match member {
            Value::Array(values) => values.push(value),
            member => *member = json!([value]),
        })
    }

    /// Changes a member, null at first, and creates its parents.
    fn change(mut self, path: &[&str], change: impl FnOnce(&mut Value)) -> Self {
        let Some((name, through)) = path.split_last() else { return self };
        let mut members = &mut self.members;
        for part in through {
            match members.entry(*part).or_insert_with(|| json!({})) {
                Value::Object(next) => members = next,
                _ => {
                    return self
                        .mistaken(ApplyError::Path { path: format!("/{}", path.join("/")) });
                }
            }
        }
        change(members.entry(*name).or_insert(Value::Null));
        self
    }

    /// A value without its nulls.
    fn encoded(&mut self, path: &str, value: &(impl Serialize + ?Sized)) -> Option<Value> {
        match without_nulls(value) {
            Ok(value) => Some(value),
            Err(error) => {
                let (path, why) = (path.to_owned(), error.to_string());
                self.mistake.get_or_insert(ApplyError::Value { path, why });
                None
            }
        }
    }

    fn mistaken(mut self, mistake: ApplyError) -> Self {
        self.mistake.get_or_insert(mistake);
        self
    }

    fn checked(&self, call: &Call) -> Result<Value, ClientError> {
        self.body()
            .map_err(|mistake| ClientError::Request { call: call.clone(), source: mistake.into() })
    }
}

impl<K: Cacheable> Api<K> {
    /// Applies `apply` with server-side apply; creates the object if it does not exist.
    ///
    /// # Errors
    ///
    /// The server refuses, such as with a conflict over another manager's fields, or cannot be
    /// reached; or `apply` has an invalid value.
    pub async fn apply(&self, apply: &Apply<K>) -> Result<K, ClientError> {
        let key = &apply.key;
        let patch = Patch::Apply(apply.checked(&self.call("apply", key.to_string()))?);
        let (call, body) = self.patch_at("apply", key, None, &patch, &apply.params).await?;
        decode(call, &body)
    }
}

impl<K: Cacheable, B: Resource + DeserializeOwned> Subresource<K, B> {
    /// Applies to the subresource, such as the status. The object must exist.
    ///
    /// # Errors
    ///
    /// As [`Api::apply`].
    pub async fn apply(&self, apply: &Apply<B>) -> Result<B, ClientError> {
        let call = self.call("apply", &apply.key)?;
        let patch = Patch::Apply(apply.checked(&call)?);
        let (key, name) = (&apply.key, Some(&*self.name));
        let (call, body) = self.api.patch_at(call.verb, key, name, &patch, &apply.params).await?;
        decode(call, &body)
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};

    use super::*;

    fn key() -> Request {
        Request::new("default", "a")
    }

    #[test]
    fn unset_fields_are_absent() {
        let apply = Apply::<Deployment>::new(&key())
            .labels([("app", "web"), ("a.b/c", "d")])
            .finalizer("a.b/one")
            .finalizer("a.b/two")
            .set("/spec/replicas", 3)
            .set("/spec/template/metadata/annotations/a.b~1c", "~")
            .set("/spec/paused", None::<bool>)
            .force();
        expect![[r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"finalizers":["a.b/one","a.b/two"],"labels":{"a.b/c":"d","app":"web"},"name":"a","namespace":"default"},"spec":{"replicas":3,"template":{"metadata":{"annotations":{"a.b/c":"~"}}}}}"#]]
            .assert_eq(&apply.body().unwrap().to_string());
    }

    #[test]
    fn typed_fields_add_to_earlier_fields() {
        let apply = Apply::<Deployment>::new(&key())
            .label("app", "web")
            .set("/spec/paused", true)
            .fields(|deployment| deployment.spec(|spec| spec.replicas(3)))
            .fields(|deployment| {
                deployment
                    .metadata(|metadata| metadata.labels([("a", "b")]))
                    .spec(|spec| spec.min_ready_seconds(4))
            });
        expect![[r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"labels":{"a":"b","app":"web"},"name":"a","namespace":"default"},"spec":{"minReadySeconds":4,"paused":true,"replicas":3}}"#]]
            .assert_eq(&apply.body().unwrap().to_string());
    }

    #[test]
    fn typed_fields_cannot_change_the_name() {
        let apply = Apply::<ConfigMap>::new(&key())
            .fields(|config| config.metadata(|metadata| metadata.name("b")));
        assert_eq!(apply.body().unwrap_err().to_string(), r#"expected "a", found "b""#);
        let apply = Apply::<Deployment>::new(&key())
            .set("/spec/template", 3)
            .fields(|deployment| deployment.spec(|spec| spec.template(|template| template)));
        assert_eq!(apply.body().unwrap_err().to_string(), "/spec/template: expected an object");
    }

    #[test]
    fn first_invalid_value_is_reported_when_applying() {
        let mistake = |apply: Apply<ConfigMap>| apply.body().unwrap_err().to_string();
        let apply = || Apply::<ConfigMap>::new(&key());
        assert_eq!(
            mistake(apply().set("data", 1)),
            r#""data" is not a path to a member of an object"#
        );
        assert_eq!(
            mistake(apply().set("/data", 1).set("/data/a", 1).set("x", 1)),
            r#""/data/a" is not a path to a member of an object"#
        );
        assert_eq!(
            mistake(apply().partial(&json!({"kind": "Secret"}))),
            r#"expected "ConfigMap", found "Secret""#
        );
        assert_eq!(
            mistake(apply().partial(&json!({"metadata": {"name": "b"}}))),
            r#"expected "a", found "b""#
        );
        assert_eq!(
            mistake(apply().member("metadata", 3).label("a", "b").finalizer("c")),
            r#""/metadata/labels/a" is not a path to a member of an object"#
        );
        assert_eq!(mistake(apply().partial(&3)), r#""/" is not a path to a member of an object"#);
        let unencodable = std::collections::BTreeMap::from([((1, 2), 3)]);
        assert_eq!(mistake(apply().member("data", unencodable)), "data: key must be a string");
    }
}
