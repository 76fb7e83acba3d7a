//! The OpenAPI 3.1 description, made from the table of routes, so that no route is missing.

mod operations;
mod schemas;

use std::sync::OnceLock;

use serde_json::{Map, Value, json};

use crate::surfaces::{Route, routes};
use operations::{COMMON_ERRORS, describe};
use schemas::{schema, schemas};
use wellspring_engine::Permission;

/// The description for an API that is mounted under a prefix.
pub(crate) fn text(prefix: &str) -> String {
    static DESCRIPTION: OnceLock<Value> = OnceLock::new();
    let mut description = DESCRIPTION.get_or_init(|| description(&routes())).clone();
    if !prefix.is_empty() {
        description["servers"] = json!([{ "url": prefix }]);
    }
    description.to_string()
}

fn description(routes: &[Route]) -> Value {
    let mut paths = Map::new();
    for route in routes {
        let operations = paths.entry(route.path).or_insert_with(|| json!({}));
        operations[route.method.as_str().to_ascii_lowercase()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Wellspring",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Runs of agents: started, watched from anywhere, answered, stopped. \
                A closed connection changes nothing; reading on after the last id misses nothing.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

fn operation(route: &Route) -> Value {
    let what = describe(&route.method, route.path);
    let mut responses = Map::new();
    for (status, description, content) in what.responses {
        let mut response = json!({ "description": description });
        if !content.is_null() {
            response["content"] = content;
        }
        responses.insert(status.to_owned(), response);
    }
    let error = json!({
        "description": "What went wrong, and what to do about it.",
        "content": { "application/json": { "schema": schema("Error") } },
    });
    for status in what.errors.iter().chain(COMMON_ERRORS) {
        responses.entry(*status).or_insert_with(|| error.clone());
    }
    let mut parameters = what.parameters;
    for name in ["run", "thread", "agent", "chat"] {
        if route.path.contains(&format!("{{{name}}}")) {
            let text = json!({ "type": "string" });
            parameters
                .push(json!({ "name": name, "in": "path", "required": true, "schema": text }));
        }
    }
    let mut operation = json!({
        "operationId": what.id,
        "summary": what.summary,
        "parameters": parameters,
        "responses": responses,
    });
    if let Some(body) = what.body {
        operation["requestBody"] = json!({
            "required": what.body_required,
            "content": { "application/json": { "schema": body } },
        });
    }
    if let Some(scope) = route.scope {
        operation["security"] = json!([{ "token": [] }]);
        operation["x-scope"] = json!(scope.as_str());
        if scope != Permission::Read {
            operation["description"] = json!(format!("Needs the scope `{}`.", scope.as_str()));
        }
    }
    operation
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_is_described() {
        let undescribed: Vec<_> = routes()
            .iter()
            .filter(|route| describe(&route.method, route.path).id.is_empty())
            .map(|route| format!("{} {}", route.method, route.path))
            .collect();
        assert_eq!(undescribed, [""; 0]);
    }

    #[test]
    fn operations_have_names_of_their_own() {
        let mut names: Vec<_> =
            routes().iter().map(|route| describe(&route.method, route.path).id).collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
