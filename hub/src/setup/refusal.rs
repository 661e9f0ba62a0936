// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Why nothing more is done.

use std::path::PathBuf;

/// Why `hub setup` goes no further.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Somebody else has a service of this name.
    #[error(
        "SAPI has a service {0} that is not ours (its metadata has no HUB_PROGRAM): it stays as it is"
    )]
    NotOurs(&'static str),
    /// A script that deploy/shar did not make, or of a name that sdcadm does not take.
    #[error("{} is no agents-….sh that deploy/shar made: it names no agent of ours", .0.display())]
    NotOurShar(PathBuf),
    /// A new service needs an image.
    #[error(
        "SAPI has no service {service}: to make it, import the image (imgadm import -m MANIFEST -f FILE into IMGAPI: \
             sdc-imgadm import) and give its uuid: hub setup {piece} --image UUID"
    )]
    NoImage { service: &'static str, piece: &'static str },
    /// The package is not there.
    #[error("PAPI has no active package {0}, which gives the zone its size")]
    NoPackage(String),
    /// No service has the user-script.
    #[error(
        "the service vmapi has no user-script in SAPI, which each zone of a service needs; is this SAPI in full mode?"
    )]
    NoUserScript,
    /// What is kept lies in a place that cannot be moved as a folder.
    #[error("{key}: {} cannot be moved: it has to be {file:?} in a folder of the service's own, such as \
             /var/db/SERVICE; change it in the zone first", place.display())]
    Place { key: &'static str, place: PathBuf, file: &'static str },
    /// The zone has other delegated datasets.
    #[error(
        "zone {zone} has the delegated dataset {dataset}: a reprovision is refused with it; remove it by hand first"
    )]
    Delegated { zone: String, dataset: String },
    /// Somebody made a dataset of that name, and what is in it is not known.
    #[error(
        "there is a dataset {0} already, which is not delegated to its zone: look at it, and rename it or destroy \
         it by hand"
    )]
    Dataset(String),
    /// A path leads out of the zone.
    #[error("{} leads out of the zone: a link in it points elsewhere", .0.display())]
    Outside(PathBuf),
    /// Both places have something.
    #[error("{} and {} are both there: which one is the service's? Remove the other", one.display(), two.display())]
    Both { one: PathBuf, two: PathBuf },
    /// The copy differs.
    #[error("the copy of {} differs: {what}. Nothing was removed; run this again", folder.display())]
    Differs { folder: PathBuf, what: String },
}
