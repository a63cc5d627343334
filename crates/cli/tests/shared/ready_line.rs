//! The line that `setpoint up` prints once it serves.

/// The URL of the HTTPS listener and, if there is one, of the plain listener; `None` if the line is
/// another one.
pub(crate) fn urls(line: &str) -> Option<(String, Option<String>)> {
    let (urls, _) = line.strip_prefix("ready ")?.split_once(" kubeconfig=")?;
    Some(match urls.split_once(" insecure=") {
        Some((url, insecure)) => (url.to_owned(), Some(insecure.to_owned())),
        None => (urls.to_owned(), None),
    })
}
