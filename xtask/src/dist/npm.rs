//! A package for npm: a module with its types, a helper for vitest, and the program.

use super::{Entry, Parts, VERSION, files};
use anyhow::{Context, Result};
use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};
use std::fs;
use std::io::Write as _;

/// The folder of the sources.
const SOURCES: &str = "packages/npm";
/// The files that are packed as they are.
const FILES: &[&str] = &["README.md", "index.d.ts", "index.js", "vitest.d.ts", "vitest.js"];
/// The time of all files: 1985-10-26T08:15:00Z, as npm itself sets it.
const MODIFIED: u64 = 499_162_500;
/// The system that gzip writes into its header: unknown.
const ANY_SYSTEM: u8 = 255;

/// Makes the package; returns its file name and its bytes.
pub(super) fn pack(parts: &Parts<'_>) -> Result<(String, Vec<u8>)> {
    let manifest = parts.root.join(SOURCES).join("package.json");
    let text = fs::read_to_string(&manifest);
    let mut text = text.with_context(|| format!("read {}", manifest.display()))?;
    // As text: the order of members has a meaning.
    for (member, value) in [("version", json!(VERSION)), ("cpu", json!([parts.platform.cpu]))] {
        set(&mut text, member, &value)?;
    }
    let mut entries = vec![Entry::new("package/package.json", text)];
    entries.append(&mut files(parts.root, SOURCES, FILES, "package")?);
    entries.append(&mut files(parts.root, "", &["LICENSE"], "package")?);
    entries.push(Entry::executable("package/bin/setpoint", parts.program));
    Ok((format!("setpoint-{VERSION}.tgz"), tarred(&entries, parts.level)?))
}

/// Sets a member of a document that has each member in a line of its own.
fn set(text: &mut String, member: &str, value: &Value) -> Result<()> {
    let start = format!("  \"{member}\": ");
    let at = text.find(&start).with_context(|| format!("package.json has no {member}"))?;
    let end = text[at..].find('\n').map_or(text.len(), |n| at + n);
    text.replace_range(at..end, &format!("{start}{value},"));
    Ok(())
}

fn tarred(entries: &[Entry], level: u8) -> Result<Vec<u8>> {
    let gzip = GzBuilder::new().operating_system(ANY_SYSTEM);
    let gzip = gzip.write(Vec::new(), Compression::new(level.into()));
    let mut tar = tar::Builder::new(gzip);
    for entry in entries {
        let mut header = tar::Header::new_ustar();
        header.set_size(u64::try_from(entry.bytes.len())?);
        header.set_mode(entry.mode);
        header.set_mtime(MODIFIED);
        header.set_uid(0);
        header.set_gid(0);
        tar.append_data(&mut header, &entry.path, &entry.bytes[..])?;
    }
    let mut gzip = tar.into_inner().context("end the archive")?;
    gzip.flush()?;
    Ok(gzip.finish()?)
}
