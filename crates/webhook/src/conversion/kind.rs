//! The hub and spokes of a kind.

use crate::{Refusal, path};
use bytes::Bytes;
use kube_core::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use setpoint_object::{GroupKind, GroupVersionKind};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Maximum number of versions of a kind, more than any kind ever served.
pub const VERSIONS_MAX: usize = 64;

/// A version that can be converted to the hub `H` and from it.
///
/// Data that `from_hub(to_hub(x))` loses is lost whenever the object is stored in the other version
/// and read back. Store data that has no field in the hub in an annotation. API servers accept
/// changes of labels and annotations only, and restore all other metadata.
///
/// ```
/// use setpoint_webhook::{Refusal, Spoke};
/// # struct CronTabV1 { cron: String }
/// # struct CronTabV2 { minute: String, rest: String }
///
/// impl Spoke<CronTabV2> for CronTabV1 {
///     fn to_hub(self) -> Result<CronTabV2, Refusal> {
///         let (minute, rest) = self.cron.split_once(' ').ok_or_else(|| Refusal::denied("no space in the cron text"))?;
///         Ok(CronTabV2 { minute: minute.into(), rest: rest.into() })
///     }
///     fn from_hub(hub: CronTabV2) -> Result<Self, Refusal> {
///         Ok(Self { cron: format!("{} {}", hub.minute, hub.rest) })
///     }
/// }
/// ```
pub trait Spoke<H>: Sized {
    /// Converts this object to the hub's version.
    ///
    /// # Errors
    ///
    /// The whole review fails with the refusal's message.
    fn to_hub(self) -> Result<H, Refusal>;

    /// Converts the hub's object to this version.
    ///
    /// # Errors
    ///
    /// The whole review fails with the refusal's message.
    fn from_hub(hub: H) -> Result<Self, Refusal>;
}

/// Why a set of versions is not a valid conversion.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConversionError {
    /// There is only the hub.
    #[error("{kind} has only one version: nothing to convert")]
    OneVersion {
        /// The kind.
        kind: GroupKind,
    },
    /// Two types have the same version.
    #[error("version {version} of {kind} is given twice")]
    Twice {
        /// The kind.
        kind: GroupKind,
        /// The version.
        version: String,
    },
    /// A spoke has another kind than the hub.
    #[error("{spoke} is not a version of {hub}")]
    OtherKind {
        /// The hub's kind.
        hub: GroupKind,
        /// The spoke.
        spoke: GroupVersionKind,
    },
    /// The versions differ from the served ones.
    #[error(
        "{kind} is only partially convertible: without conversion {missing:?}, not served {unknown:?}"
    )]
    Partial {
        /// The kind.
        kind: GroupKind,
        /// Served, but neither hub nor spoke.
        missing: Vec<String>,
        /// Hub or spoke, but not served.
        unknown: Vec<String>,
    },
    /// There are more than [`VERSIONS_MAX`] versions.
    #[error("{kind} has more than {VERSIONS_MAX} versions")]
    TooMany {
        /// The kind.
        kind: GroupKind,
    },
}

/// The conversion of one kind, with validated versions.
///
/// It answers the reviews of a conversion webhook, so it works with every Kubernetes API server. A
/// program that embeds a control plane may convert without a webhook: `ControlPlaneBuilder` has
/// `converter`, which takes a `setpoint::registry::ConversionProvider` over encoded objects.
#[derive(Clone)]
pub struct KindConversion {
    kind: GroupKind,
    erased: Arc<dyn ConvertKind>,
}

impl KindConversion {
    /// Starts a conversion with this type as the hub. Add spokes to it.
    pub fn hub<H>() -> KindConversionBuilder<H>
    where
        H: Resource<DynamicType = ()> + Serialize + DeserializeOwned + Send + 'static,
    {
        KindConversionBuilder {
            hub: path::kind_of::<H>(),
            spokes: BTreeMap::new(),
            served: None,
            wrong: None,
        }
    }

    /// The kind that is converted.
    pub fn group_kind(&self) -> &GroupKind {
        &self.kind
    }

    pub(super) fn into_erased(self) -> Arc<dyn ConvertKind> {
        self.erased
    }
}

impl fmt::Debug for KindConversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KindConversion").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// Collects the versions of a kind.
#[must_use = "a builder does nothing until `build`"]
pub struct KindConversionBuilder<H> {
    hub: GroupVersionKind,
    spokes: BTreeMap<String, Functions<H>>,
    served: Option<Vec<String>>,
    wrong: Option<ConversionError>,
}

impl<H> fmt::Debug for KindConversionBuilder<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KindConversionBuilder")
            .field("hub", &self.hub)
            .field("spokes", &self.spokes.keys())
            .finish_non_exhaustive()
    }
}

/// The two conversion functions of a spoke, on JSON text.
struct Functions<H> {
    to_hub: Box<ToHub<H>>,
    from_hub: Box<FromHub<H>>,
}

type ToHub<H> = dyn Fn(&[u8]) -> Result<H, Refusal> + Send + Sync;
type FromHub<H> = dyn Fn(H) -> Result<Value, Refusal> + Send + Sync;

impl<H> KindConversionBuilder<H>
where
    H: Serialize + DeserializeOwned + Send + 'static,
{
    /// Adds a version.
    pub fn spoke<S>(self) -> Self
    where
        S: Spoke<H> + Resource<DynamicType = ()> + Serialize + DeserializeOwned + 'static,
    {
        self.spoke_of::<S>(path::kind_of::<S>(), S::to_hub, S::from_hub)
    }

    /// Adds a version with two functions, for foreign types and for types without a kind of their
    /// own (`serde_json::Value`). The result's `apiVersion` and `kind` are set to `kind`.
    pub fn spoke_of<S>(
        mut self,
        kind: GroupVersionKind,
        to_hub: impl Fn(S) -> Result<H, Refusal> + Send + Sync + 'static,
        from_hub: impl Fn(H) -> Result<S, Refusal> + Send + Sync + 'static,
    ) -> Self
    where
        S: Serialize + DeserializeOwned + 'static,
    {
        let functions = Functions {
            to_hub: Box::new(move |text| to_hub(serde_json::from_slice(text).map_err(unreadable)?)),
            from_hub: Box::new(move |hub| serde_json::to_value(from_hub(hub)?).map_err(unwritable)),
        };
        let version = kind.version.to_string();
        if kind.group_kind() != self.hub.group_kind() {
            let hub = self.hub.group_kind();
            self.wrong.get_or_insert(ConversionError::OtherKind { hub, spoke: kind });
        } else if kind.version == self.hub.version || self.spokes.contains_key(&version) {
            let kind = self.hub.group_kind();
            self.wrong.get_or_insert(ConversionError::Twice { kind, version });
        } else {
            self.spokes.insert(version, functions);
        }
        self
    }

    /// The versions that the definition serves: hub and spokes must be exactly these (WHK-9).
    /// Without this call any two versions are accepted.
    pub fn serving<V: Into<String>>(mut self, versions: impl IntoIterator<Item = V>) -> Self {
        self.served = Some(versions.into_iter().map(Into::into).collect());
        self
    }

    /// Builds the conversion.
    ///
    /// # Errors
    ///
    /// If the versions are not one hub and at least one spoke of the same kind, each once, or
    /// differ from the served ones.
    pub fn build(self) -> Result<KindConversion, ConversionError> {
        let kind = self.hub.group_kind();
        if let Some(wrong) = self.wrong {
            return Err(wrong);
        }
        if let Some(served) = self.served {
            let own = || self.spokes.keys().map(String::as_str).chain([&*self.hub.version]);
            let has = |version: &str| own().any(|own| own == version);
            let missing: Vec<_> = served.iter().filter(|v| !has(v)).cloned().collect();
            let unknown: Vec<_> =
                own().filter(|own| !served.iter().any(|v| v == own)).map(str::to_owned).collect();
            if !(missing.is_empty() && unknown.is_empty()) {
                return Err(ConversionError::Partial { kind, missing, unknown });
            }
        }
        match self.spokes.len() {
            0 => return Err(ConversionError::OneVersion { kind }),
            VERSIONS_MAX.. => return Err(ConversionError::TooMany { kind }),
            _ => {}
        }
        let erased = Arc::new(HubAndSpokes { hub: self.hub, spokes: self.spokes });
        Ok(KindConversion { kind, erased })
    }
}

/// A conversion with its hub type erased.
pub(super) trait ConvertKind: Send + Sync {
    /// Converts the object to another version.
    fn convert(&self, text: &Bytes, from: &str, to: &str) -> Result<Value, Refusal>;
}

struct HubAndSpokes<H> {
    hub: GroupVersionKind,
    spokes: BTreeMap<String, Functions<H>>,
}

impl<H> HubAndSpokes<H> {
    fn spoke(&self, version: &str) -> Result<&Functions<H>, Refusal> {
        self.spokes.get(version).ok_or_else(|| {
            let kind = self.hub.group_kind();
            Refusal::errored(400, format!("no conversion for version {version} of {kind}"))
        })
    }
}

impl<H: Serialize + DeserializeOwned + Send + 'static> ConvertKind for HubAndSpokes<H> {
    fn convert(&self, text: &Bytes, from: &str, to: &str) -> Result<Value, Refusal> {
        let hub = if from == &*self.hub.version {
            serde_json::from_slice(text).map_err(unreadable)?
        } else {
            (self.spoke(from)?.to_hub)(text)?
        };
        if to == &*self.hub.version {
            serde_json::to_value(hub).map_err(unwritable)
        } else {
            (self.spoke(to)?.from_hub)(hub)
        }
    }
}

fn unreadable(error: serde_json::Error) -> Refusal {
    Refusal::errored(400, format!("decode the object: {error}"))
}

pub(super) fn unwritable(error: serde_json::Error) -> Refusal {
    Refusal::errored(500, format!("encode the object: {error}"))
}
