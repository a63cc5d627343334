//! Columns of custom resources: which are left out.

use super::*;

/// Name and the columns before the path stay.
#[test]
fn path_that_cannot_be_parsed_ends_the_columns() {
    let column = |path: &str| json!({"name": path, "type": "string", "jsonPath": path});
    for (paths, names) in [
        (&[".a", ".spec[", ".c"][..], &["Name", ".a"][..]),
        (&[".spec[", ".c"], &["Name"]),
        (&[".a[?(@.b[?(@.c)])]"], &["Name"]),
        (&[".a b", ".a[?(@.b==c)]"], &["Name", ".a b", ".a[?(@.b==c)]"]),
    ] {
        let columns = Columns::custom(&paths.iter().map(|path| column(path)).collect());
        let shown: Vec<&str> = columns.definitions.iter().map(|d| d.name.as_str()).collect();
        assert_eq!(shown, names);
        let cells = columns.row(&json!({"metadata": {"name": "x"}, "a": {"b": 1}}), NOW);
        assert_eq!(cells.len(), names.len());
    }
}

#[test]
fn custom_resources_without_columns_show_their_age() {
    let columns = Columns::custom(&Value::Null);
    let names: Vec<&str> = columns.definitions.iter().map(|d| d.name.as_str()).collect();
    assert_eq!(names, ["Name", "Age"]);
    let object = json!({"metadata": {"name": "x", "creationTimestamp": "2026-01-01T00:05:00Z"}});
    assert_eq!(Value::from(columns.row(&object, NOW)), json!(["x", "5m"]));
}

#[test]
fn scales_of_custom_resources_have_columns_of_other_types() {
    let types = |is_custom| {
        let columns = Columns::of_scale(is_custom);
        [0, 3].map(|at| {
            let ColumnDefinition { ty, format, .. } = &columns.definitions[at];
            (ty.clone(), format.clone())
        })
    };
    let pair = |ty: &str, format: &str| (ty.to_owned(), format.to_owned());
    assert_eq!(types(false), [pair("string", ""), pair("string", "")]);
    assert_eq!(types(true), [pair("string", "name"), pair("date", "")]);
}
