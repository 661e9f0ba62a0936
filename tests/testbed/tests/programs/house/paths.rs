// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The modules of a crate and the paths that each of them names.
//!
//! Only `crate::…` and `super::…` are read, in `use` and elsewhere; a path through a child needs
//! neither. Code below `#[cfg(test)]`, and files that such a line declares, are left out.

use std::collections::BTreeSet;

use super::source::{self, Kind};

/// A module, in a file of its own or inside one.
#[derive(Debug, Default)]
pub struct Module {
    pub file: String,
    pub path: Vec<String>,
    /// The modules that it declares, in their order.
    pub children: Vec<String>,
    /// Line and absolute path of each use.
    pub uses: Vec<(usize, Vec<String>)>,
}

/// Reads the modules of the crate in `folder`; the first is the crate's root.
pub fn modules(folder: &str) -> Vec<Module> {
    let root = source::root();
    let src = format!("{folder}/src");
    let mut modules = Vec::new();
    let mut test_files = BTreeSet::new();
    for file in source::files(&root, &src, "rs") {
        let inner =
            file.trim_start_matches("./").strip_prefix(&format!("{src}/")).unwrap().to_owned();
        if inner == "main.rs" || inner.starts_with("bin/") {
            continue;
        }
        let path = inner.trim_end_matches(".rs").trim_end_matches("/mod").trim_start_matches("lib");
        let path: Vec<String> =
            path.split('/').filter(|it| !it.is_empty()).map(str::to_owned).collect();
        let text = std::fs::read_to_string(root.join(&file)).unwrap();
        let own = Module { file, path, ..Module::default() };
        let mut reader =
            Reader { tokens: tokens(&text), at: 0, found: Vec::new(), test_files: Vec::new() };
        reader.module(own);
        modules.extend(reader.found);
        test_files.extend(reader.test_files);
    }
    modules.retain(|it| !(1..=it.path.len()).any(|len| test_files.contains(&it.path[..len])));
    modules.sort_by(|a, b| a.path.cmp(&b.path));
    modules
}

struct Reader {
    tokens: Vec<(usize, String)>,
    at: usize,
    found: Vec<Module>,
    test_files: Vec<Vec<String>>,
}

impl Reader {
    fn peek(&self, ahead: usize) -> &str {
        self.tokens.get(self.at + ahead).map_or("", |(_, token)| token)
    }

    /// Reads a module up to the brace that ends it.
    fn module(&mut self, mut own: Module) {
        let mut depth = 0;
        while self.at < self.tokens.len() {
            match self.peek(0) {
                "#" if self.is_for_tests() => {
                    self.skip_item(&own.path);
                    continue;
                }
                "{" => depth += 1,
                "}" if depth == 0 => break,
                "}" => depth -= 1,
                "mod" if is_word(self.peek(1)) => {
                    let name = self.peek(1).to_owned();
                    own.children.push(name.clone());
                    self.at += 2;
                    if self.peek(0) == "{" {
                        self.at += 1;
                        let path = [own.path.as_slice(), &[name]].concat();
                        self.module(Module { file: own.file.clone(), path, ..Module::default() });
                    }
                }
                "crate" | "super" if self.peek(1) == "::" => {
                    let line = self.tokens[self.at].0;
                    let mut path = own.path.clone();
                    if self.peek(0) == "crate" {
                        path.clear();
                        self.at += 2;
                    }
                    while self.peek(0) == "super" {
                        path.pop();
                        self.at += 2;
                    }
                    self.tree(line, &path, &mut own.uses);
                    continue;
                }
                _ => {}
            }
            self.at += 1;
        }
        self.found.push(own);
    }

    /// Reads what follows `crate::`: one path, or a tree of them in braces.
    fn tree(&mut self, line: usize, prefix: &[String], uses: &mut Vec<(usize, Vec<String>)>) {
        let mut path = prefix.to_vec();
        loop {
            match self.peek(0) {
                "{" => {
                    self.at += 1;
                    while !matches!(self.peek(0), "}" | "") {
                        self.tree(line, &path, uses);
                        while !matches!(self.peek(0), "," | "}" | "") {
                            self.at += 1; // `as name`
                        }
                        if self.peek(0) == "," {
                            self.at += 1;
                        }
                    }
                    self.at += 1;
                    return;
                }
                "self" => self.at += 1,
                "*" => {
                    path.push("*".to_owned());
                    self.at += 1;
                }
                word if is_word(word) => {
                    path.push(word.to_owned());
                    self.at += 1;
                    if self.peek(0) == "::" {
                        self.at += 1;
                        continue;
                    }
                }
                _ => {}
            }
            uses.push((line, path));
            return;
        }
    }

    /// Returns true at an attribute such as `#[cfg(test)]`.
    fn is_for_tests(&self) -> bool {
        let shown: Vec<&str> = (1..8).map(|ahead| self.peek(ahead)).collect();
        matches!(shown[..], ["[", "cfg", "(", "test", ")", ..])
            || matches!(shown[..], ["[", "cfg", "(", "all", "(", "test", ..])
    }

    /// Goes past the next item, and notes the file that it declares.
    fn skip_item(&mut self, path: &[String]) {
        let mut depth = 0;
        while self.at < self.tokens.len() {
            let token = self.peek(0).to_owned();
            if token == "mod" && self.peek(2) == ";" && depth == 0 {
                self.test_files.push([path, &[self.peek(1).to_owned()]].concat());
            }
            self.at += 1;
            match token.as_str() {
                "{" => depth += 1,
                "}" if depth == 1 => return,
                "}" => depth -= 1,
                ";" if depth == 0 => return,
                _ => {}
            }
        }
    }
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Splits the code of a text into words, `::` and single characters, each with its line.
fn tokens(text: &str) -> Vec<(usize, String)> {
    let mut tokens = Vec::new();
    for part in source::parts(text).into_iter().filter(|part| part.kind == Kind::Code) {
        let mut rest = part.text.as_str();
        while let Some(c) = rest.chars().next() {
            let len = match c {
                '\'' => source::character(rest),
                ':' if rest.starts_with("::") => 2,
                c if c.is_alphanumeric() || c == '_' => {
                    rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
                }
                c => c.len_utf8(),
            };
            if !c.is_whitespace() && c != '\'' {
                tokens.push((part.line, rest[..len].to_owned()));
            }
            rest = &rest[len..];
        }
    }
    tokens
}

#[test]
fn paths_are_resolved_and_test_code_is_left_out() {
    let text = "use crate::{a::B, c::{self, D as E}};\nfn f(x: super::G) { '{'; crate::h::i(); }\n\
        #[cfg(test)]\nmod tests { use super::*; }\nmod inner { use super::super::j::*; }\n\
        #[cfg(test)]\nmod more;\npub(super) fn k() {}";
    let own = Module { path: vec!["x".into(), "y".into()], ..Module::default() };
    let mut reader =
        Reader { tokens: tokens(text), at: 0, found: Vec::new(), test_files: Vec::new() };
    reader.module(own);
    let shown: Vec<String> = reader
        .found
        .iter()
        .flat_map(|it| it.uses.iter().map(|(line, path)| format!("{line} {}", path.join("::"))))
        .collect();
    assert_eq!(shown, ["5 x::j::*", "1 a::B", "1 c", "1 c::D", "2 x::G", "2 h::i"]);
    assert_eq!(reader.test_files, [["x", "y", "more"]]);
}
