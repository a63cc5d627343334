//! Histories of templates in ControllerRevisions, for StatefulSets and DaemonSets.

use super::deployment::{comparable, hash};
use super::pod::{BY_CONTROLLER, controller_key, orphan_key};
use super::pod_control::precondition;
use super::view::view;
use k8s_openapi::api::apps::v1 as apps;
use kube_core::params::Patch;
use kube_core::{ApiResource, DynamicObject};
use serde_json::{Value, json};
use setpoint_informer::Cacheable;
use setpoint_object::label::Selector;
use setpoint_runtime::adopt::Claim;
use setpoint_runtime::owner::controller_of;
use setpoint_runtime::{BoxError, Client, Context, Request, Watch, controller_reference};

/// How often a name that is taken is replaced in one pass.
const COLLISIONS_MAX: i32 = 16;

view! {
    /// One template of a history.
    ControllerRevision of apps::ControllerRevision {
        /// The number of the revision; the newest has the greatest.
        revision: i64,
        /// The patch that restores the template.
        data: Value,
    }
}

impl ControllerRevision {
    /// A label's value; empty if it is absent.
    pub(crate) fn label(&self, key: &str) -> &str {
        let labels = self.metadata.labels.as_ref();
        labels.and_then(|labels| labels.get(key)).map_or("", String::as_str)
    }

    /// The template. What has not its shape is left out: anybody may have written the revision.
    pub(crate) fn template(&self) -> Value {
        let mut template = self.data["spec"]["template"].clone();
        let Some(members) = template.as_object_mut() else { return json!({}) };
        members.remove("$patch");
        for part in ["metadata", "spec"] {
            if members.get(part).is_some_and(|part| !part.is_object()) {
                members.remove(part);
            }
        }
        if let Some(metadata) = members.get_mut("metadata").and_then(Value::as_object_mut)
            && metadata.get("labels").is_some_and(|labels| !labels.is_object())
        {
            metadata.remove("labels");
        }
        template
    }
}

/// The watch of revisions, with their index.
pub(crate) fn revisions() -> Watch<ControllerRevision> {
    Watch::new().index(BY_CONTROLLER, by_controller)
}

fn by_controller(revision: &ControllerRevision) -> Vec<String> {
    vec![controller_key(revision)]
}

/// The history of one owner in one pass.
pub(crate) struct History<'a, O> {
    client: &'a Client,
    owner: &'a O,
    /// The label of a revision's hash.
    hash_label: &'static str,
    /// Oldest first.
    pub(crate) revisions: Vec<ControllerRevision>,
    /// How often hashes have collided: `status.collisionCount`.
    pub(crate) n_collisions: i32,
}

impl<'a, O: Cacheable<DynamicType = ()>> History<'a, O> {
    /// Reads the history, and adopts the revisions without a controller whose labels match.
    pub(crate) async fn read(
        context: &Context,
        client: &'a Client,
        owner: &'a O,
        selector: &Selector,
        hash_label: &'static str,
        n_collisions: i32,
    ) -> Result<Self, BoxError> {
        let namespace = owner.meta().namespace.as_deref().unwrap_or_default();
        let lister = super::fresh::lister::<ControllerRevision>(context, client, namespace).await?;
        let uid = owner.meta().uid.as_deref().unwrap_or_default();
        let mut revisions = lister.by_index(BY_CONTROLLER, uid)?;
        let mut orphans = lister.by_index(BY_CONTROLLER, &orphan_key(namespace))?;
        // A revision whose labels were changed is still the owner's: only orphans are selected.
        orphans.retain(|orphan| orphan.metadata.deletion_timestamp.is_none());
        let owners = client.api::<O>();
        let claim = Claim::of(&owners, owner, selector)?;
        revisions.extend(claim.claim(&client.api(), orphans).await?.children);
        let mut revisions: Vec<_> = revisions.iter().map(|found| (**found).clone()).collect();
        revisions.sort_by(|a, b| (a.revision, a.name()).cmp(&(b.revision, b.name())));
        Ok(Self { client, owner, hash_label, revisions, n_collisions })
    }

    /// The revision of a template, which becomes the newest: an existing one, or a new one. `None`
    /// if there is none and the owner is gone.
    pub(crate) async fn update(
        &mut self,
        template: &Value,
    ) -> Result<Option<ControllerRevision>, BoxError> {
        let wanted = comparable(template);
        let next = self.revisions.last().map_or(0, |last| last.revision).saturating_add(1);
        let existing =
            self.revisions.iter().rposition(|found| comparable(&found.template()) == wanted);
        if let Some(at) = existing {
            if at + 1 < self.revisions.len() {
                let key = self.key(self.revisions[at].name());
                let version = &self.revisions[at].metadata.resource_version;
                let patch = json!({"metadata": {"resourceVersion": version}, "revision": next});
                let api = self.client.api::<ControllerRevision>();
                let renumbered = api.patch(&key, &Patch::Merge(patch)).await?;
                self.revisions.remove(at);
                self.revisions.push(renumbered);
            }
            return Ok(self.revisions.last().cloned());
        }
        if !super::fresh::is_live(&self.client.api(), self.owner).await? {
            return Ok(None);
        }
        let created = self.create(template, &wanted, next).await?;
        self.revisions.push(created.clone());
        Ok(Some(created))
    }

    async fn create(
        &mut self,
        template: &Value,
        wanted: &Value,
        number: i64,
    ) -> Result<ControllerRevision, BoxError> {
        let resource = ApiResource::erase::<apps::ControllerRevision>(&());
        let owner = self.owner.meta().name.as_deref().unwrap_or_default();
        let mut data = template.clone();
        data["$patch"] = json!("replace");
        let first = self.n_collisions;
        loop {
            let hash = hash(wanted, (self.n_collisions > 0).then_some(self.n_collisions));
            let name = format!("{owner}-{hash}");
            let mut revision = DynamicObject::new(&name, &resource);
            revision.metadata.namespace.clone_from(&self.owner.meta().namespace);
            let mut labels = template["metadata"]["labels"].clone();
            labels[self.hash_label] = json!(hash);
            revision.metadata.labels = serde_json::from_value(labels)?;
            // All of them, as the reference: `kubectl rollout history` shows the change cause.
            revision.metadata.annotations.clone_from(&self.owner.meta().annotations);
            revision.metadata.owner_references = Some(vec![controller_reference(self.owner, &())?]);
            revision.data = json!({"data": {"spec": {"template": data}}, "revision": number});
            let api = self.client.api_with::<DynamicObject>(resource.clone());
            let error = match api.create(&revision).await {
                Ok(created) => return Ok(serde_json::from_value(serde_json::to_value(created)?)?),
                Err(error) => error,
            };
            if !error.is_already_exists() {
                return Err(error.into());
            }
            // A lost answer, or another template with the same hash.
            let revisions = self.client.api::<ControllerRevision>();
            let Some(existing) = revisions.get_live(&self.key(&name)).await? else { continue };
            let uid = controller_of(&existing).map(|owner| owner.uid.as_str());
            let is_own = uid == self.owner.meta().uid.as_deref();
            if is_own && comparable(&existing.template()) == *wanted {
                return Ok(existing);
            }
            if self.n_collisions - first >= COLLISIONS_MAX {
                return Err(error.into());
            }
            self.n_collisions += 1;
        }
    }

    /// Deletes the oldest revisions beyond `limit`, without those that `is_live`.
    pub(crate) async fn truncate(
        &self,
        limit: i32,
        is_live: impl Fn(&ControllerRevision) -> bool,
    ) -> Result<(), BoxError> {
        let Ok(limit) = usize::try_from(limit) else { return Ok(()) };
        let old: Vec<_> = self.revisions.iter().filter(|found| !is_live(found)).collect();
        let n = old.len().saturating_sub(limit);
        for revision in &old[..n] {
            let uid = revision.metadata.uid.as_deref().unwrap_or_default();
            let api = self.client.api::<ControllerRevision>();
            api.delete(&self.key(revision.name()), &precondition(uid)).await?;
        }
        Ok(())
    }

    fn key(&self, name: &str) -> Request {
        Request::new(self.owner.meta().namespace.as_deref().unwrap_or_default(), name)
    }
}
