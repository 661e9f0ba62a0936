// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Recorded outputs of commands, for other arguments than those of the recording.

/// What `zfs` prints for these arguments, from a recorded listing of all datasets with all columns
/// (`vm_model::parse::zfs_list::COLUMNS`). Lines that are no rows are printed as they were.
pub fn zfs_list(recorded: &[u8], args: &[String]) -> Vec<u8> {
    let after = |flag: &str| args.iter().skip_while(|arg| *arg != flag).nth(1);
    let all: Vec<&str> = vm_model::parse::zfs_list::COLUMNS.split(',').collect();
    let place = |column: &str| all.iter().position(|one| *one == column);
    let wanted: Vec<usize> = match after("-o") {
        Some(columns) => columns.split(',').filter_map(place).collect(),
        None => (0..all.len()).collect(),
    };
    let types: Vec<&[u8]> = match after("-t") {
        Some(types) => types.split(',').map(str::as_bytes).collect(),
        None => vec![b"filesystem"],
    };
    let kind = place("type").unwrap_or_default();
    let mut printed = Vec::new();
    for line in recorded.split_inclusive(|byte| *byte == b'\n') {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        let columns: Vec<&[u8]> = text.split(|byte| *byte == b'\t').collect();
        if columns.len() != all.len() {
            printed.extend_from_slice(line);
            continue;
        }
        if columns.get(kind).is_some_and(|kind| types.contains(kind)) {
            let shown = wanted.iter().filter_map(|at| columns.get(*at).copied());
            printed.extend(shown.collect::<Vec<_>>().join(&b'\t'));
            printed.extend_from_slice(line.get(text.len()..).unwrap_or_default());
        }
    }
    printed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_and_columns_are_chosen() {
        let row = |name: &str, kind: &str| {
            let columns =
                vm_model::parse::zfs_list::COLUMNS.split(',').map(|column| match column {
                    "name" => name,
                    "type" => kind,
                    _ => "-",
                });
            columns.collect::<Vec<_>>().join("\t") + "\n"
        };
        let all = row("z", "filesystem") + "odd\n" + &row("z@a", "snapshot");
        let args = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let listed = zfs_list(all.as_bytes(), &args("list -t snapshot -o type,name"));
        assert_eq!(String::from_utf8_lossy(&listed), "odd\nsnapshot\tz@a\n");
    }
}
