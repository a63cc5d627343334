//! Authorization configurations.
use setpoint_control_plane::AuthorizationConfig;

/// Any bytes are a configuration, valid or not, or refused; the same each time. A valid one names
/// its authorizers, each once.
pub fn check(input: &[u8]) {
    let read = || {
        let config = AuthorizationConfig::parse(input).map_err(|error| error.to_string())?;
        config.validate().map_err(|error| error.to_string())?;
        Ok::<_, String>(config)
    };
    let result = read();
    assert_eq!(result, read());
    let Ok(config) = result else { return };
    let mut names: Vec<&String> = config.authorizers.iter().map(|one| &one.name).collect();
    assert!(!names.is_empty() && names.iter().all(|name| !name.is_empty()));
    let n = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), n);
}
