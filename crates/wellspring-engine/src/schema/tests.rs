use schemars::JsonSchema;
use serde_json::json;

use super::*;

fn complaints(schema: &Value, value: &Value) -> Vec<String> {
    Schema::compile(schema).unwrap().validate(value).err().unwrap_or_default()
}

#[test]
fn complaints_name_the_path() {
    let schema = json!({
        "type": "object",
        "properties": {
            "entries": {
                "type": "array",
                "maxItems": 2,
                "items": {"type": "object", "properties": {"status": {"enum": ["a", "b"]}}}
            },
            "name": {"type": "string", "pattern": "^[a-z]+$", "minLength": 2}
        },
        "required": ["entries"],
        "additionalProperties": false
    });
    for (value, want) in [
        (json!({"entries": []}), &[][..]),
        (json!({}), &[r#"top level: "entries" is a required property"#]),
        (json!(3), &[r#"top level: value is not of type "object""#]),
        (
            json!({"entries": [{"status": "secret"}, 7]}),
            &[
                r#"/entries/0/status: value is not one of "a" or "b""#,
                r#"/entries/1: value is not of type "object""#,
            ],
        ),
        (json!({"entries": [{}, {}, {}]}), &["/entries: value has more than 2 items"]),
        (
            json!({"entries": [], "name": "A", "more": 1}),
            &[
                "top level: Additional properties are not allowed ('more' was unexpected)",
                "/name: value is shorter than 2 characters",
                r#"/name: value does not match "^[a-z]+$""#,
            ],
        ),
    ] {
        let mut found = complaints(&schema, &value);
        found.sort();
        let mut want: Vec<_> = want.iter().map(ToString::to_string).collect();
        want.sort();
        assert_eq!(found, want, "{value}");
    }
}

#[test]
fn complaints_are_limited() {
    let schema = json!({"type": "array", "items": {"type": "integer"}});
    let found = complaints(&schema, &json!(vec!["no"; 1000]));
    assert_eq!(found.len(), COMPLAINTS_MAX + 1);
    assert_eq!(found[COMPLAINTS_MAX], "more than 16 things are wrong");
}

#[test]
fn what_is_no_schema_does_not_compile() {
    for (schema, want) in [
        (json!({"type": "objekt"}), "the schema cannot be used: /type: "),
        (json!(3), "the schema cannot be used: top level: "),
        (json!({"$ref": "https://example.org/schema.json"}), "the schema cannot be used: "),
        (json!({"$ref": "file:///etc/passwd"}), "the schema cannot be used: "),
        (json!({"$ref": "#/nowhere"}), "the schema cannot be used: "),
        (json!({"pattern": "("}), "the schema cannot be used: "),
    ] {
        let error = Schema::compile(&schema).unwrap_err().to_string();
        assert!(error.starts_with(want), "{schema} gave {error}");
    }
}

/// A pattern that would go back for ever ends, and does not match.
#[test]
fn a_hostile_pattern_ends() {
    let schema = json!({"type": "string", "pattern": "^(a|aa)+(?=c)$"});
    assert_eq!(complaints(&schema, &json!("a".repeat(200))).len(), 1);
}

/// The schemas that `schemars` derives hold the values that `serde` reads, and their
/// recursive references stay inside the document.
#[test]
fn derived_schemas_compile() {
    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Tree {
        name: Option<String>,
        size: u8,
        children: Vec<Tree>,
    }
    let schema = crate::tools::parameters::<Tree>();
    let leaf = json!({"size": 1, "children": []});
    assert_eq!(complaints(&schema, &json!({"name": null, "size": 1, "children": [leaf]})), [""; 0]);
    assert_eq!(
        complaints(&schema, &json!({"size": 256, "children": [{"children": []}]})),
        [
            r#"/children/0: "size" is a required property"#,
            "/size: value is greater than the maximum of 255",
        ]
    );
}

/// What a model needs to repair a value that should have been one of several kinds.
#[test]
fn of_alternatives_the_closest_is_named() {
    #[derive(JsonSchema)]
    #[serde(tag = "kind", rename_all = "snake_case")]
    #[expect(dead_code, reason = "only its schema is looked at")]
    enum Shape {
        Circle { radius: f64 },
        Square { side: f64, name: Option<String> },
    }
    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Drawing {
        shapes: Vec<Shape>,
    }
    let schema = crate::tools::parameters::<Drawing>();
    let circle = json!({"kind": "circle", "radius": "wide"});
    assert_eq!(
        complaints(&schema, &json!({"shapes": [circle]})),
        ["/shapes/0: value is not valid under any of the schemas listed in the 'oneOf' keyword; \
          closest: /shapes/0/radius: value is not of type \"number\""]
    );
    let square = json!({"kind": "square", "side": 1.0, "name": "a"});
    assert_eq!(complaints(&schema, &json!({"shapes": [square]})), [""; 0]);
}

/// Schemas come from clients too: what would take seconds to compile is refused at once.
#[test]
fn a_schema_that_is_too_large_is_refused() {
    let patterns = |count: usize, pattern: &str| {
        let members = (0..count)
            .map(|number| (format!("p{number}"), json!({ "type": "string", "pattern": pattern })));
        json!({ "type": "object", "properties": members.collect::<serde_json::Map<_, _>>() })
    };
    let by_key = |count: usize| {
        let members = (0..count).map(|number| (format!("^{number}"), json!(true)));
        json!({ "patternProperties": members.collect::<serde_json::Map<_, _>>() })
    };
    let said = |schema: &Value| {
        Schema::compile(schema).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(said(&patterns(PATTERNS_MAX, "^[a-z]+$")), "");
    assert_eq!(
        [
            said(&patterns(PATTERNS_MAX + 1, "^[a-z]+$")),
            said(&by_key(PATTERNS_MAX + 1)),
            said(&patterns(2, &"a".repeat(PATTERN_CHARS_MAX / 2 + 1))),
            said(&json!({ "enum": vec![0; NODES_MAX] })),
        ],
        [
            "the schema cannot be used: it has 65 patterns, more than 64",
            "the schema cannot be used: it has 65 patterns, more than 64",
            "the schema cannot be used: its patterns have 8194 characters, more than 8192",
            "the schema cannot be used: it has more than 20000 values",
        ]
    );
}
