//! Skims of decoded values and of temporary JSON.
use setpoint_object::Skim;
use std::borrow::Cow;

/// A skim that owns its text.
pub(super) fn owned(skim: Skim<'_>) -> Skim<'static> {
    fn text(text: Cow<'_, str>) -> Cow<'static, str> {
        Cow::Owned(text.into_owned())
    }
    fn pairs(
        pairs: Vec<(Cow<'_, str>, Cow<'_, str>)>,
    ) -> Vec<(Cow<'static, str>, Cow<'static, str>)> {
        pairs.into_iter().map(|(key, value)| (text(key), text(value))).collect()
    }
    let mut owned = Skim::default();
    owned.api_version = text(skim.api_version);
    owned.kind = text(skim.kind);
    owned.name = text(skim.name);
    owned.namespace = text(skim.namespace);
    owned.uid = text(skim.uid);
    owned.resource_version = text(skim.resource_version);
    owned.generation = skim.generation;
    owned.creation_timestamp = text(skim.creation_timestamp);
    owned.deletion_timestamp = text(skim.deletion_timestamp);
    owned.labels = pairs(skim.labels);
    owned.annotations = pairs(skim.annotations);
    owned.owner_references = skim
        .owner_references
        .into_iter()
        .map(|owner| setpoint_object::skim::OwnerReference {
            api_version: text(owner.api_version),
            kind: text(owner.kind),
            name: text(owner.name),
            uid: text(owner.uid),
            controller: owner.controller,
            block_owner_deletion: owner.block_owner_deletion,
        })
        .collect();
    owned.finalizers = skim.finalizers.into_iter().map(text).collect();
    // The range is meaningless without the text.
    owned.managed_fields = None;
    owned
}

/// The skim of decoded metadata.
pub(super) fn of(meta: &kube_core::ObjectMeta) -> Skim<'_> {
    fn text(value: &Option<String>) -> Cow<'_, str> {
        Cow::Borrowed(value.as_deref().unwrap_or_default())
    }
    fn pairs(
        map: &Option<std::collections::BTreeMap<String, String>>,
    ) -> Vec<(Cow<'_, str>, Cow<'_, str>)> {
        map.iter().flatten().map(|(k, v)| (Cow::from(k.as_str()), Cow::from(v.as_str()))).collect()
    }
    let mut skim = Skim::default();
    skim.name = text(&meta.name);
    skim.namespace = text(&meta.namespace);
    skim.uid = text(&meta.uid);
    skim.resource_version = text(&meta.resource_version);
    skim.generation = meta.generation.unwrap_or_default();
    skim.deletion_timestamp = meta
        .deletion_timestamp
        .as_ref()
        .map(|time| Cow::from(time.0.to_string()))
        .unwrap_or_default();
    skim.labels = pairs(&meta.labels);
    skim.annotations = pairs(&meta.annotations);
    skim.finalizers =
        meta.finalizers.iter().flatten().map(|name| Cow::from(name.as_str())).collect();
    skim.owner_references = meta
        .owner_references
        .iter()
        .flatten()
        .map(|owner| setpoint_object::skim::OwnerReference {
            api_version: Cow::from(owner.api_version.as_str()),
            kind: Cow::from(owner.kind.as_str()),
            name: Cow::from(owner.name.as_str()),
            uid: Cow::from(owner.uid.as_str()),
            controller: owner.controller.unwrap_or_default(),
            block_owner_deletion: owner.block_owner_deletion.unwrap_or_default(),
        })
        .collect();
    skim
}
