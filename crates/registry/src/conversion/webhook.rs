//! The conversion of a definition.
use super::{Conversion, ConversionProvider, Converter};
use crate::catalog::Resource;
use crate::figures::Figures;
use crate::threads::Threads;
use parking_lot::Mutex;
use serde_json::Value;
use setpoint_object::GroupKind;
use std::sync::{Arc, OnceLock};

/// The strategy `Webhook` of one definition, shared by the rows of its versions.
#[derive(Debug)]
pub(crate) struct Webhook {
    /// The name of the definition.
    name: Arc<str>,
    /// `spec.conversion`.
    spec: Value,
    /// Objects may be stored in more than one version.
    is_mixed: bool,
    /// Created when an object is first converted.
    conversion: OnceLock<Option<Arc<dyn Conversion>>>,
    /// By served version; there are few.
    converters: Mutex<Vec<(Arc<str>, Arc<Converter>)>>,
}
impl Webhook {
    /// From a definition; `None` for other strategies.
    pub(crate) fn of(definition: &Value) -> Option<Arc<Self>> {
        let spec = &definition["spec"]["conversion"];
        if spec["strategy"] != "Webhook" {
            return None;
        }
        let versions = definition["status"]["storedVersions"].as_array();
        let is_mixed = versions.is_some_and(|versions| versions.len() > 1);
        let name = definition["metadata"]["name"].as_str().unwrap_or_default().into();
        let (conversion, converters) = (OnceLock::new(), Mutex::default());
        Some(Arc::new(Self { name, spec: spec.clone(), is_mixed, conversion, converters }))
    }
    /// The converter from stored objects to a row's version. `None`: they have that version, or
    /// there is no converter.
    pub(crate) fn served(
        &self,
        provider: &dyn ConversionProvider,
        (figures, threads): (&Figures, &Threads),
        row: &Resource,
    ) -> Option<Arc<Converter>> {
        let is_stored = row.gvk.version == row.storage_version && !self.is_mixed;
        if is_stored {
            return None;
        }
        self.converter(provider, (figures, threads), &row.group_kind(), &row.gvk.version)
    }
    /// The converter to a version. Its calls are counted in `figures`; long objects are checked on
    /// `threads`.
    pub(crate) fn converter(
        &self,
        provider: &dyn ConversionProvider,
        (figures, threads): (&Figures, &Threads),
        kind: &GroupKind,
        version: &Arc<str>,
    ) -> Option<Arc<Converter>> {
        // The provider is code of the embedder: it is called outside the lock.
        let conversion = self.conversion.get_or_init(|| {
            let conversion = provider.conversion(kind, &self.spec)?;
            Some(figures.webhooks.conversion(self.name.clone(), conversion))
        });
        let conversion = conversion.clone()?;
        let mut converters = self.converters.lock();
        if let Some((_, known)) = converters.iter().find(|(known, _)| known == version) {
            return Some(known.clone());
        }
        let converter = Arc::new(Converter::new(conversion, threads.clone()));
        converters.push((version.clone(), converter.clone()));
        Some(converter)
    }
}
