// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The table of a service's endpoints: what its router finds, what a 405 allows, what its document (OpenAPI) lists.

use http::Method;
use serde_json::{Map, Value, json};

use super::params::{decoded, is_uuid};

/// A path of a service and its methods.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint<R: 'static> {
    /// The path. `{name}` stands for one part of it, `{name?}` for one that may be empty, and `{name=uuid}` for a
    /// UUID in lower case.
    pub path: &'static str,
    /// The methods in the order in which a 405 lists them: `GET, HEAD`.
    pub methods: &'static str,
    /// What the service calls it.
    pub route: R,
    /// What its documents say of it; empty in a mock, which has none.
    pub about: &'static str,
    /// What its methods take and give, as far as the documents say it.
    pub shapes: &'static [Shape],
}

/// What a method of a path takes and gives. A name is that of a schema; in brackets it is a list of them, and empty it
/// is nothing that is described.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The method.
    pub method: &'static str,
    /// The parameters of the query.
    pub query: &'static [&'static str],
    /// The body of the request.
    pub takes: &'static str,
    /// The body of the answer.
    pub gives: &'static str,
    /// The status of the answer.
    pub status: &'static str,
}

impl Shape {
    /// What is read.
    pub const fn get(query: &'static [&'static str], gives: &'static str) -> Shape {
        Shape { method: "GET", query, takes: "", gives, status: "200" }
    }

    /// What is sent.
    pub const fn post(
        query: &'static [&'static str],
        takes: &'static str,
        gives: &'static str,
        status: &'static str,
    ) -> Shape {
        Shape { method: "POST", query, takes, gives, status }
    }
}

/// Returns the content of a body.
fn content(name: &str) -> Value {
    let inner = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    let schema = json!({ "$ref": format!("#/components/schemas/{}", inner.unwrap_or(name)) });
    let schema = match inner {
        Some(_) => json!({ "type": "array", "items": schema }),
        None => schema,
    };
    json!({ "application/json": { "schema": schema } })
}

impl<R> Endpoint<R> {
    /// An endpoint without a text.
    pub const fn new(path: &'static str, methods: &'static str, route: R) -> Self {
        Endpoint { path, methods, route, about: "", shapes: &[] }
    }

    /// The same with a text.
    #[must_use]
    pub const fn about(mut self, about: &'static str) -> Self {
        self.about = about;
        self
    }

    /// The same with what its methods take and give.
    #[must_use]
    pub const fn shapes(mut self, shapes: &'static [Shape]) -> Self {
        self.shapes = shapes;
        self
    }

    /// Returns true if a request may have this method.
    pub fn allows(&self, method: &Method) -> bool {
        self.methods.split(", ").any(|own| own == method.as_str())
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.path.split('/').filter_map(|part| Some(Variable::of(part)?.name))
    }
}

/// A variable part of a path.
struct Variable {
    name: &'static str,
    may_be_empty: bool,
    is_uuid: bool,
}

impl Variable {
    fn of(part: &'static str) -> Option<Variable> {
        let inner = part.strip_prefix('{')?.strip_suffix('}')?;
        let (may_be_empty, is_uuid) = (inner.ends_with('?'), inner.ends_with("=uuid"));
        let name = inner.trim_end_matches('?').trim_end_matches("=uuid");
        Some(Variable { name, may_be_empty, is_uuid })
    }

    fn fits(&self, value: &str) -> bool {
        (self.may_be_empty || !value.is_empty()) && (!self.is_uuid || is_uuid(value))
    }
}

/// What several slashes in a row are; those at the beginning are one everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slashes {
    /// As many empty parts.
    Kept,
    /// One empty part.
    Folded,
    /// One slash. A slash at the end still has an empty part behind it.
    Dropped,
}

/// The endpoints of a service. The first that fits a path has it.
#[derive(Clone, Copy, Debug)]
pub struct Endpoints<R: 'static> {
    /// All of them.
    pub all: &'static [Endpoint<R>],
    /// How it reads several slashes in a row.
    pub slashes: Slashes,
}

/// The endpoint of a path.
#[derive(Clone, Debug)]
pub struct Found<R: 'static> {
    /// The endpoint.
    pub endpoint: &'static Endpoint<R>,
    /// The variable parts of the path, decoded.
    pub named: Vec<(&'static str, String)>,
}

impl<R> Found<R> {
    /// Returns a variable part; empty if the path has none of this name.
    pub fn part(&self, name: &str) -> &str {
        self.named.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }
}

impl<R> Endpoints<R> {
    /// Returns the endpoint of a path.
    pub fn find(&self, path: &str) -> Option<Found<R>> {
        let asked = self.parts(path);
        self.all.iter().find_map(|endpoint| {
            let parts: Vec<&str> = endpoint.path.trim_start_matches('/').split('/').collect();
            if parts.len() != asked.len() {
                return None;
            }
            let mut named = Vec::new();
            for (part, asked) in parts.into_iter().zip(&asked) {
                match Variable::of(part) {
                    Some(variable) => {
                        let value = decoded(asked);
                        variable.fits(&value).then(|| named.push((variable.name, value)))?;
                    }
                    None => (part == *asked).then_some(())?,
                }
            }
            Some(Found { endpoint, named })
        })
    }

    fn parts<'a>(&self, path: &'a str) -> Vec<&'a str> {
        let mut parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        match self.slashes {
            Slashes::Kept => {}
            Slashes::Folded => {
                parts.dedup_by(|part, before| part.is_empty() && before.is_empty());
            }
            Slashes::Dropped => {
                let is_open = parts.len() > 1 && path.ends_with('/');
                parts.retain(|part| !part.is_empty());
                parts.extend(is_open.then_some(""));
            }
        }
        parts
    }

    /// Returns the document of the interface.
    pub fn openapi(&self, title: &str, version: &str, schemas: Map<String, Value>) -> Value {
        openapi(title, version, self.paths(), schemas)
    }

    /// Returns the paths of a document.
    pub fn paths(&self) -> Map<String, Value> {
        let item = |endpoint: &Endpoint<R>| -> Map<String, Value> {
            let methods = endpoint.methods.split(", ");
            methods.map(|method| (method.to_lowercase(), endpoint.operation(method))).collect()
        };
        self.all.iter().map(|it| (it.path.to_owned(), item(it).into())).collect()
    }
}

/// Returns the document (OpenAPI 3.1) of an interface that may have several tables: paths, methods, what they are for,
/// what they take and give.
pub fn openapi(
    title: &str,
    version: &str,
    paths: Map<String, Value>,
    schemas: Map<String, Value>,
) -> Value {
    let info = json!({ "title": title, "version": version });
    json!({ "openapi": "3.1.0", "info": info, "paths": paths, "components": { "schemas": schemas } })
}

impl<R> Endpoint<R> {
    fn operation(&self, method: &str) -> Value {
        let string = json!({ "type": "string" });
        let parameter = |place: &str, name: &str, is_needed: bool| json!({ "name": name, "in": place, "required": is_needed, "schema": string });
        let shape = self.shapes.iter().find(|shape| shape.method == method);
        let asked = shape.map_or(&[][..], |shape| shape.query);
        let parameters = self.names().map(|name| parameter("path", name, true));
        let parameters: Vec<Value> =
            parameters.chain(asked.iter().map(|name| parameter("query", name, false))).collect();
        let words = self.path.split(['/', '{', '}', '=', '?']).filter(|word| !word.is_empty());
        let id: Vec<&str> = std::iter::once(method).chain(words).collect();
        let refused =
            json!({ "description": "it is refused, or failed", "content": content("Refusal") });
        let mut operation = json!({
            "operationId": id.join("_").to_lowercase(), "summary": self.about, "responses": { "default": refused },
        });
        if let Some(shape) = shape {
            let mut answer = json!({ "description": "it was done" });
            if !shape.gives.is_empty() {
                answer["content"] = content(shape.gives);
            }
            operation["responses"] =
                json!({ shape.status: answer, "default": operation["responses"]["default"] });
            if !shape.takes.is_empty() {
                operation["requestBody"] =
                    json!({ "required": true, "content": content(shape.takes) });
            }
        }
        if !parameters.is_empty() {
            operation["parameters"] = parameters.into();
        }
        operation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &[Endpoint<u8>] = &[
        Endpoint::new("/ping", "GET", 1),
        Endpoint::new("/vms", "GET, POST", 2)
            .about("the VMs")
            .shapes(&[Shape::get(&["state"], "[Vm]"), Shape::post(&[], "Vm", "", "202")]),
        Endpoint::new("/vms/{uuid=uuid}", "GET", 3),
        Endpoint::new("/vms/{name?}", "GET", 4),
        Endpoint::new("/vms/{uuid}/tags/{tag}", "GET, DELETE", 5),
    ];
    const VM: &str = "40000000-0000-4000-8000-000000000001";

    #[test]
    fn a_path_has_the_first_endpoint_that_fits() {
        let by = |slashes: Slashes, path: &str| {
            let found = Endpoints { all: ALL, slashes }.find(path)?;
            let named: Vec<String> = found.named.iter().map(|(k, v)| format!("{k}={v}")).collect();
            Some(format!("{} {}", found.endpoint.route, named.join(" ")).trim_end().to_owned())
        };
        use Slashes::{Dropped, Folded, Kept};
        for (slashes, path, expected) in [
            (Kept, "/ping", Some("1".to_owned())),
            (Kept, "//ping", Some("1".to_owned())),
            (Kept, "/ping/", None),
            (Kept, "/vms/a%20b+c", Some("4 name=a b+c".to_owned())),
            (Kept, &format!("/vms/{VM}"), Some(format!("3 uuid={VM}"))),
            (Kept, "/vms/", Some("4 name=".to_owned())),
            (Kept, "/vms//tags/x", None),
            (Kept, "/vms/v/tags/x", Some("5 uuid=v tag=x".to_owned())),
            (Kept, "/vms//", None),
            (Folded, "/vms//", Some("4 name=".to_owned())),
            (Folded, "/vms//tags/x", None),
            (Dropped, "/vms//v//tags/x", Some("5 uuid=v tag=x".to_owned())),
            (Dropped, "/vms//", Some("4 name=".to_owned())),
            (Dropped, "/", None),
        ] {
            assert_eq!(by(slashes, path), expected, "{slashes:?} {path}");
        }
        assert!(ALL[1].allows(&Method::POST) && !ALL[0].allows(&Method::POST));
    }

    #[test]
    fn documents_are_made_of_the_table() {
        let all = Endpoints { all: ALL, slashes: Slashes::Kept };
        let schemas = Map::from_iter([("Vm".to_owned(), json!({ "type": "object" }))]);
        let document = all.openapi("x", "1", schemas);
        let methods = document["paths"]["/vms/{uuid}/tags/{tag}"].as_object().unwrap();
        assert_eq!(methods.keys().collect::<Vec<_>>(), ["get", "delete"]);
        assert_eq!(methods["get"]["parameters"][1]["name"], "tag");
        let vms = &document["paths"]["/vms"];
        assert_eq!(
            (&vms["post"]["summary"], &vms["post"]["operationId"]),
            (&json!("the VMs"), &json!("post_vms"))
        );
        let vm = json!({ "$ref": "#/components/schemas/Vm" });
        assert_eq!(vms["post"]["requestBody"]["content"]["application/json"]["schema"], vm);
        assert_eq!(vms["post"]["responses"]["202"]["description"], "it was done");
        let listed = &vms["get"]["responses"]["200"]["content"]["application/json"]["schema"];
        assert_eq!(*listed, json!({ "type": "array", "items": vm }));
        assert_eq!(vms["get"]["parameters"][0]["name"], "state");
    }
}
