//! Views: what controllers read of a type.
//!
//! A view declares the fields that a controller uses; the cache decodes nothing else of an object.
//! Pod templates stay JSON, so that fields that this program does not know are kept. Views are read
//! and patched, but never written as whole objects.

use serde::{Deserialize, Deserializer};

/// Declares a view of a Kubernetes type: a struct with `metadata`, what is asked most often of it,
/// and the named fields.
macro_rules! view {
    ($(#[$doc:meta])* $name:ident of $kind:ty { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, serde::Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        pub(crate) struct $name {
            /// The metadata.
            pub(crate) metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            $($(#[$field_doc])* pub(crate) $field: $type,)*
        }

        #[allow(dead_code, reason = "no view needs all of them")]
        impl $name {
            /// The name; empty if it is absent.
            pub(crate) fn name(&self) -> &str {
                self.metadata.name.as_deref().unwrap_or_default()
            }

            /// The namespace; empty if it has none.
            pub(crate) fn namespace(&self) -> &str {
                self.metadata.namespace.as_deref().unwrap_or_default()
            }

            /// The uid; empty if it is absent.
            pub(crate) fn uid(&self) -> &str {
                self.metadata.uid.as_deref().unwrap_or_default()
            }

            /// Whether it is being deleted.
            pub(crate) fn is_being_deleted(&self) -> bool {
                self.metadata.deletion_timestamp.is_some()
            }
        }

        impl kube_core::Resource for $name {
            type DynamicType = ();
            type Scope = <$kind as kube_core::Resource>::Scope;

            fn kind(_: &()) -> std::borrow::Cow<'_, str> {
                <$kind as kube_core::Resource>::kind(&())
            }

            fn group(_: &()) -> std::borrow::Cow<'_, str> {
                <$kind as kube_core::Resource>::group(&())
            }

            fn version(_: &()) -> std::borrow::Cow<'_, str> {
                <$kind as kube_core::Resource>::version(&())
            }

            fn plural(_: &()) -> std::borrow::Cow<'_, str> {
                <$kind as kube_core::Resource>::plural(&())
            }

            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(
                &mut self,
            ) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

/// The value, or its default if it is null: Kubernetes writes times that are not known so.
pub(crate) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// A time in RFC 3339, empty if it is not known: null in JSON, which may be missing.
pub(crate) mod time {
    use serde::{Deserializer, Serialize, Serializer};

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
        super::or_default(from)
    }

    pub(crate) fn serialize<S: Serializer>(time: &str, to: S) -> Result<S::Ok, S::Error> {
        Some(time).filter(|time| !time.is_empty()).serialize(to)
    }
}

pub(crate) use view;
