//! What a definition says about its conversion.
use super::{Conversion, ConversionProvider, Converter};
use crate::catalog::Resource;
use parking_lot::Mutex;
use serde_json::Value;
use setpoint_object::GroupKind;
use std::sync::{Arc, OnceLock};

/// The strategy `Webhook` of one definition, shared by the rows of its versions.
#[derive(Debug)]
pub(crate) struct Webhook {
    /// `spec.conversion`.
    spec: Value,
    /// Objects may be stored in more than one version.
    is_mixed: bool,
    /// Found when an object is first converted.
    conversion: OnceLock<Option<Arc<dyn Conversion>>>,
    /// By served version; they are few.
    converters: Mutex<Vec<(Arc<str>, Arc<Converter>)>>,
}
impl Webhook {
    /// Of a definition; `None` for other strategies.
    pub(crate) fn of(definition: &Value) -> Option<Arc<Self>> {
        let spec = &definition["spec"]["conversion"];
        if spec["strategy"] != "Webhook" {
            return None;
        }
        let versions = definition["status"]["storedVersions"].as_array();
        let is_mixed = versions.is_some_and(|versions| versions.len() > 1);
        let (conversion, converters) = (OnceLock::new(), Mutex::default());
        Some(Arc::new(Self { spec: spec.clone(), is_mixed, conversion, converters }))
    }
    /// What makes a row's version of stored objects. `None`: they are of that version, or nobody
    /// can make it.
    pub(crate) fn served(
        &self,
        provider: &dyn ConversionProvider,
        row: &Resource,
    ) -> Option<Arc<Converter>> {
        let is_stored = row.gvk.version == row.storage_version && !self.is_mixed;
        if is_stored { None } else { self.converter(provider, &row.group_kind(), &row.gvk.version) }
    }
    /// What makes a version of objects.
    pub(crate) fn converter(
        &self,
        provider: &dyn ConversionProvider,
        kind: &GroupKind,
        version: &Arc<str>,
    ) -> Option<Arc<Converter>> {
        // The provider is somebody else's code: it is asked outside the lock.
        let conversion = self.conversion.get_or_init(|| provider.conversion(kind, &self.spec));
        let conversion = conversion.clone()?;
        let mut converters = self.converters.lock();
        if let Some((_, known)) = converters.iter().find(|(known, _)| known == version) {
            return Some(known.clone());
        }
        let converter = Arc::new(Converter::new(conversion));
        converters.push((version.clone(), converter.clone()));
        Some(converter)
    }
}
