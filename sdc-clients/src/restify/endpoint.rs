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
    /// What each method does, in a line: `PUT ?force NewVm -> 201 Vm: replaces it`. Behind the method come the parameters
    /// of the query (`?a&b!`, where `!` is needed), the body (`{}` is any object, `Vm?` may be left out), and the status
    /// (`200|202`) with the body of the answer, which is JSON; `[Vm]` is a list, `lines Vm` a line of JSON each as they come, `text` a
    /// text. Behind the colon is what the method does, where [`about`](Self::about) does not say it.
    pub does: &'static [&'static str],
}

/// A line of [`Endpoint::does`].
struct Does {
    query: &'static str,
    takes: &'static str,
    status: &'static str,
    gives: &'static str,
    about: &'static str,
}

impl Does {
    fn read(line: &'static str) -> Option<Does> {
        let (line, about) = line.split_once(": ").unwrap_or((line, ""));
        let (asked, answered) = line.split_once(" -> ")?;
        let (status, gives) = answered.split_once(' ').unwrap_or((answered, ""));
        let mut asked = asked.split(' ').skip(1).peekable();
        let query = asked.next_if(|it| it.starts_with('?')).unwrap_or_default();
        let takes = asked.next().unwrap_or_default();
        Some(Does { query, takes, status, gives, about })
    }
}

/// Returns the content of a body.
fn content(name: &str) -> Value {
    let object = json!({ "type": "object" });
    let schema = |name: &str| match name {
        "{}" => object.clone(),
        "text" => json!({ "type": "string" }),
        name => json!({ "$ref": format!("#/components/schemas/{name}") }),
    };
    if name == "text" {
        return json!({ "text/plain": { "schema": { "type": "string" } } });
    }
    if let Some(item) = name.strip_prefix("lines ") {
        return json!({ "application/x-ndjson": { "schema": schema(item) } });
    }
    let schema = match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        Some(item) => json!({ "type": "array", "items": schema(item) }),
        None => schema(name),
    };
    json!({ "application/json": { "schema": schema } })
}

impl<R> Endpoint<R> {
    /// An endpoint without a text.
    pub const fn new(path: &'static str, methods: &'static str, route: R) -> Self {
        Endpoint { path, methods, route, about: "", does: &[] }
    }

    /// The same with a text.
    #[must_use]
    pub const fn about(mut self, about: &'static str) -> Self {
        self.about = about;
        self
    }

    /// The same with what its methods take and give.
    #[must_use]
    pub const fn does(mut self, does: &'static [&'static str]) -> Self {
        self.does = does;
        self
    }

    /// Returns true if a request may have this method.
    pub fn allows(&self, method: &Method) -> bool {
        self.methods.split(", ").any(|own| own == method.as_str())
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
        let does = self.does.iter().find(|line| line.split(' ').next() == Some(method));
        let does = does.and_then(|line| Does::read(line));
        let parameter = |place: &str, name: &str, is_needed: bool, schema: Value| json!({ "name": name, "in": place, "required": is_needed, "schema": schema });
        let parts = self.path.split('/').filter_map(Variable::of).map(|part| {
            let schema = match part.is_uuid || part.name == "uuid" {
                true => json!({ "type": "string", "format": "uuid" }),
                false => json!({ "type": "string" }),
            };
            parameter("path", part.name, true, schema)
        });
        let asked = does.as_ref().map_or("", |does| does.query).trim_start_matches('?').split('&');
        let asked = asked.filter(|name| !name.is_empty()).map(|name| {
            let needed = name.strip_suffix('!');
            parameter(
                "query",
                needed.unwrap_or(name),
                needed.is_some(),
                json!({ "type": "string" }),
            )
        });
        let parameters: Vec<Value> = parts.chain(asked).collect();
        let words =
            self.path.split(['/', '{', '}', '=', '?', '.', '-']).filter(|word| !word.is_empty());
        let id: Vec<&str> = std::iter::once(method).chain(words).collect();
        let refused =
            json!({ "description": "it is refused, or failed", "content": content("Refusal") });
        let about = does.as_ref().map_or("", |does| does.about);
        let about = if about.is_empty() { self.about } else { about };
        let mut operation = json!({
            "operationId": id.join("_").to_lowercase(), "summary": about, "responses": {},
        });
        if let Some(Does { takes, status, gives, .. }) = does {
            let mut answer = json!({ "description": "it was done" });
            if !gives.is_empty() {
                answer["content"] = content(gives);
            }
            for status in status.split('|') {
                operation["responses"][status] = answer.clone();
            }
            if !takes.is_empty() {
                let (name, is_needed) =
                    takes.strip_suffix('?').map_or((takes, true), |name| (name, false));
                operation["requestBody"] =
                    json!({ "required": is_needed, "content": content(name) });
            }
        }
        operation["responses"]["default"] = refused;
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
            .does(&["GET ?state&by! -> 200 [Vm]", "POST Vm? -> 201|202: makes one"]),
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
        assert_eq!(methods["get"]["parameters"][0]["schema"]["format"], "uuid");
        let vms = &document["paths"]["/vms"];
        let told = |method: &str, name: &str| vms[method][name].as_str().unwrap().to_owned();
        assert_eq!(
            (told("post", "summary"), told("get", "summary")),
            ("makes one".into(), "the VMs".into())
        );
        assert_eq!(told("post", "operationId"), "post_vms");
        assert_eq!(vms["post"]["requestBody"]["required"], false);
        let vm = json!({ "$ref": "#/components/schemas/Vm" });
        assert_eq!(vms["post"]["requestBody"]["content"]["application/json"]["schema"], vm);
        assert_eq!(vms["post"]["responses"]["202"]["description"], "it was done");
        let listed = &vms["get"]["responses"]["200"]["content"]["application/json"]["schema"];
        assert_eq!(*listed, json!({ "type": "array", "items": vm }));
        let asked = vms["get"]["parameters"].as_array().unwrap().iter();
        let asked: Vec<_> =
            asked.map(|it| (it["name"].as_str().unwrap(), it["required"] == true)).collect();
        assert_eq!(asked, [("state", false), ("by", true)]);
        let lines = content("lines Vm");
        assert_eq!(lines["application/x-ndjson"]["schema"], vm);
        assert_eq!(content("{}")["application/json"]["schema"], json!({ "type": "object" }));
    }
}
