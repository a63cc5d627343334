//! Logs tell why something failed.

use super::files::is_product;
use super::{code_of, sources};

/// Ways to log an error without its causes: `Display` tells its own level only, and in JSON so does
/// an error as a value.
const WITHOUT_CAUSES: [&str; 4] = ["%error", "%err,", "as &dyn std::error::Error", "as &dyn Error"];

#[test]
fn logs_tell_the_causes_of_errors() {
    let mut wrong = Vec::new();
    for path in sources().into_iter().filter(|path| is_product(path)) {
        let code = code_of(&path);
        let found = WITHOUT_CAUSES.into_iter().filter(|way| code.contains(way));
        wrong.extend(found.map(|way| format!("{}: {way}", path.display())));
    }
    assert!(
        wrong.is_empty(),
        "log `error = chain(&error)`, of `setpoint_object::error`: {wrong:#?}"
    );
}
