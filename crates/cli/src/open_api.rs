//! `--openapi`: descriptions of built-in types from published documents.

use anyhow::{Context as _, bail};
use clap::Args;
use setpoint::ControlPlaneBuilder;
use setpoint::apiserver::{OPEN_API_FILE_BYTES_MAX, OpenApiDescriptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum documents of one folder. Kubernetes publishes some eighty.
const DOCUMENTS_MAX: usize = 1_000;

/// Documents of OpenAPI.
#[derive(Debug, Args)]
pub(crate) struct OpenApiOptions {
    /// A published OpenAPI document of Kubernetes (`swagger.json`, or one of version 3), or a
    /// folder of them: `kubectl explain` shows their descriptions of built-in types, and known
    /// values (enums). May be given several times. Read at start. Without it, types, required
    /// fields and defaults are shown.
    #[arg(long = "openapi", value_name = "FILE")]
    files: Vec<PathBuf>,
}

impl OpenApiOptions {
    /// Gives a control plane the descriptions.
    pub(crate) async fn apply(
        self,
        plane: ControlPlaneBuilder,
    ) -> anyhow::Result<ControlPlaneBuilder> {
        if self.files.is_empty() {
            return Ok(plane);
        }
        let descriptions = tokio::task::spawn_blocking(move || read(&self.files)).await??;
        Ok(plane.open_api_descriptions(Arc::new(descriptions)))
    }
}

fn read(files: &[PathBuf]) -> anyhow::Result<OpenApiDescriptions> {
    let mut descriptions = OpenApiDescriptions::new();
    for file in files {
        for document in documents(file)? {
            add(&mut descriptions, &document)
                .with_context(|| format!("--openapi: read {}", document.display()))?;
        }
    }
    if descriptions.is_empty() {
        bail!("--openapi: the documents describe no built-in type");
    }
    Ok(descriptions)
}

/// The file itself, or the documents of a folder in name order.
fn documents(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let context = || format!("--openapi: read {}", path.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).with_context(context)? {
        let file = entry.with_context(context)?.path();
        if file.is_file() && file.extension().is_some_and(|extension| extension == "json") {
            found.push(file);
        }
        if found.len() > DOCUMENTS_MAX {
            bail!("--openapi: {} has more than {DOCUMENTS_MAX} documents", path.display());
        }
    }
    found.sort();
    Ok(found)
}

fn add(descriptions: &mut OpenApiDescriptions, file: &Path) -> anyhow::Result<()> {
    Ok(descriptions.add(&setpoint_small_file::read(file, OPEN_API_FILE_BYTES_MAX)?)?)
}
