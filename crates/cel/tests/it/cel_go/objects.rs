//! Objects of a schema by chance.

use serde_json::{Map, Value as Json, json};

use super::generate::{Generator, Random, WORDS};

impl Generator {
    /// An object of the schema. Some properties are absent.
    pub(super) fn object(&mut self, schema: &Json) -> Json {
        let random = &mut self.random;
        let word = |random: &mut Random, limit: usize| {
            let words: Vec<_> = WORDS.iter().filter(|word| word.chars().count() <= limit).collect();
            json!(random.of(&words))
        };
        if schema.get("x-kubernetes-int-or-string").is_some() {
            return if random.chance(500) { json!(random.below(9)) } else { word(random, 9) };
        }
        let limit =
            |name: &str| schema.get(name).and_then(Json::as_u64).map_or(5, |limit| limit as usize);
        match (schema["type"].as_str().unwrap_or_default(), schema["format"].as_str()) {
            ("boolean", _) => json!(random.chance(500)),
            ("integer", _) => json!(*random.of(&[0i64, 1, 2, -3, 7, 100, i64::MAX, i64::MIN])),
            ("number", _) => match random.below(5) {
                0 => json!(3),
                _ => json!(*random.of(&[0.0, 1.5, -2.25, 1e300, 0.1])),
            },
            (_, Some("byte")) => json!(*random.of(&["", "YWJj", "/w==", "aGVsbG8="])),
            (_, Some("date-time")) => {
                json!(*random.of(&[
                    "2023-01-02T03:04:05Z",
                    "2020-02-29T00:00:00.5+01:00",
                    "1960-01-01T00:00:00Z"
                ]))
            }
            (_, Some("date")) => json!(*random.of(&["2023-01-02", "1999-12-31"])),
            (_, Some("duration")) => json!(*random.of(&["1h", "30s", "1m0.5s", "0s"])),
            ("string", _) => match schema.get("enum").and_then(Json::as_array) {
                Some(values) => random.of(values).clone(),
                None => word(random, limit("maxLength").max(5)),
            },
            ("array", _) => {
                let size = random.below(limit("maxItems").min(5));
                let mut items: Vec<Json> = Vec::new();
                for at in 0..size {
                    let mut item = self.object(&schema["items"]);
                    match schema["x-kubernetes-list-type"].as_str() {
                        Some("map") => item["name"] = json!(format!("n{at}")),
                        Some("set") if items.contains(&item) => continue,
                        _ => {}
                    }
                    items.push(item);
                }
                Json::Array(items)
            }
            _ => {
                let mut object = Map::new();
                if let Some(values) = schema.get("additionalProperties") {
                    for key in ["a", "b", "red", "x y"] {
                        if self.random.chance(600) {
                            object.insert(key.to_owned(), self.object(values));
                        }
                    }
                }
                for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                    let required = schema["required"].as_array().into_iter().flatten();
                    if required.into_iter().any(|required| required == name)
                        || self.random.chance(850)
                    {
                        object.insert(name.clone(), self.object(property));
                    }
                }
                Json::Object(object)
            }
        }
    }
}
