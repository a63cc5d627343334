//! The known values of texts in built-in types, which `kubectl explain` lists.

use serde_json::Value;
use std::collections::HashMap;
use std::sync::LazyLock;

/// One line for each list of values.
const TABLE: &str = include_str!("values.txt");

/// By definition and field.
static VALUES: LazyLock<HashMap<(&str, &str), &str>> = LazyLock::new(|| {
    let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
    let lists = lines.filter_map(|line| line.split_once(" = "));
    lists
        .flat_map(|(values, fields)| fields.split(' ').map(move |field| (field, values)))
        .filter_map(|(field, values)| Some((field.rsplit_once('/')?, values)))
        .collect()
});

/// The values of a field, of the items of a list or of the values of a map.
pub(super) fn of(definition: &str, field: &str) -> Option<impl Iterator<Item = Value>> {
    VALUES.get(&(definition, field)).map(|values| values.split('|').map(Value::from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use setpoint_facts::{DEFINITIONS, Type};

    #[test]
    fn every_line_names_a_text_of_a_built_in_type() {
        assert!(VALUES.len() > 90);
        for (definition, field) in VALUES.keys() {
            let at = setpoint_facts::definition(definition).expect(definition);
            let fields = DEFINITIONS[usize::from(at)].fields;
            let found = fields.iter().find(|candidate| candidate.name == *field).expect(field);
            let ty = match &found.ty {
                Type::List(inner) | Type::Map(inner) => inner,
                ty => ty,
            };
            assert!(matches!(ty, Type::Str), "{definition} {field}");
        }
    }
}
