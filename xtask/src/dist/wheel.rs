//! A wheel for PyPI: Python's module, pytest's fixtures, and the program among the scripts.

use super::{Entry, Parts, VERSION, files};
use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use std::fs;
use std::io::{Cursor, Write as _};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

/// The folder of the sources.
const SOURCES: &str = "packages/python";
/// The files of the module.
const MODULE: &[&str] = &["__init__.py", "py.typed", "pytest_plugin.py"];

/// Makes the wheel; returns its file name and its bytes.
pub(super) fn pack(parts: &Parts<'_>) -> Result<(String, Vec<u8>)> {
    let (major, minor) = parts.platform.glibc;
    let tag = format!("py3-none-manylinux_{major}_{minor}_{}", parts.platform.machine);
    let info = format!("setpoint-{VERSION}.dist-info");
    let readme = fs::read_to_string(parts.root.join(SOURCES).join("README.md"))?;
    let mut entries = files(parts.root, &format!("{SOURCES}/setpoint"), MODULE, "setpoint")?;
    let program = format!("setpoint-{VERSION}.data/scripts/setpoint");
    entries.push(Entry::executable(program, parts.program));
    entries.append(&mut files(parts.root, "", &["LICENSE"], &format!("{info}/licenses"))?);
    let wheel = format!(
        "Wheel-Version: 1.0\nGenerator: xtask {VERSION}\nRoot-Is-Purelib: false\nTag: {tag}\n"
    );
    let plugin = "[pytest11]\nsetpoint = setpoint.pytest_plugin\n";
    entries.push(Entry::new(format!("{info}/METADATA"), metadata(&readme)));
    entries.push(Entry::new(format!("{info}/WHEEL"), wheel));
    entries.push(Entry::new(format!("{info}/entry_points.txt"), plugin));
    entries.push(record(&entries, format!("{info}/RECORD")));
    Ok((format!("setpoint-{VERSION}-{tag}.whl"), zipped(&entries, parts.level)?))
}

fn metadata(readme: &str) -> String {
    format!(
        "Metadata-Version: 2.4\n\
         Name: setpoint\n\
         Version: {VERSION}\n\
         Summary: A Kubernetes control plane in one process, for tests\n\
         License-Expression: {}\n\
         License-File: LICENSE\n\
         Project-URL: Repository, {}\n\
         Classifier: Framework :: Pytest\n\
         Classifier: Operating System :: POSIX :: Linux\n\
         Requires-Python: >=3.9\n\
         Description-Content-Type: text/markdown\n\
         \n\
         {readme}",
        env!("CARGO_PKG_LICENSE"),
        env!("CARGO_PKG_REPOSITORY"),
    )
}

/// The list of all files with their hashes and sizes. It has neither of itself.
fn record(entries: &[Entry], path: String) -> Entry {
    let line = |entry: &Entry| {
        let hash = URL_SAFE_NO_PAD.encode(Sha256::digest(&entry.bytes));
        format!("{},sha256={hash},{}\n", entry.path, entry.bytes.len())
    };
    let lines: String = entries.iter().map(line).collect();
    let record = format!("{lines}{path},,\n");
    Entry::new(path, record)
}

fn zipped(entries: &[Entry], level: u8) -> Result<Vec<u8>> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for entry in entries {
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .compression_level(Some(level.into()))
            // The earliest time of the format.
            .last_modified_time(DateTime::default())
            .unix_permissions(entry.mode);
        zip.start_file(&*entry.path, options)?;
        zip.write_all(&entry.bytes)?;
    }
    Ok(zip.finish()?.into_inner())
}
