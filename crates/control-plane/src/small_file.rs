//! Files of configurations, which are small.

use std::io::{self, Read as _};
use std::path::Path;

/// The bytes of a file; `None`: there are more than `bytes_max`.
///
/// # Errors
///
/// The file cannot be read.
pub(crate) fn read(path: &Path, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(1);
    std::fs::File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok((bytes.len() <= bytes_max).then_some(bytes))
}
