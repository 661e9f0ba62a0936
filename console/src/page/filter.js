// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// The search: vmadm's filters (`state=running`, `alias=~^web`, `tags.role=db`, `nics.*.ip=10.0.0.1`) and
// plain words, which are looked for in names, and at the beginning of uuids, MACs and addresses. All must hold; of one
// key the last counts. Pure.

import { short } from './format.js';

const TYPES = { bhyve: 'BHYV', kvm: 'KVM', lx: 'LX' };
const LISTS = /^(nics|disks)\.(\d+|\*)\.([a-z_]+)$/;
const BEGINNING = /^[0-9a-f][0-9a-f-]{3,}$/;
const MAPS = /^(tags|customer_metadata|internal_metadata)\.(.+)$/;

/**
 * Reads a search. Returns `{ test, problem }`: `test(vm, words)` says whether the VM passes, where `words`
 * are those of its row; `problem` is null or why the search cannot be understood.
 */
export function parse(text, fields) {
  const terms = (text.match(/(?:[^\s"]|"[^"]*")+/g) ?? []).map((term) => term.replaceAll('"', ''));
  const [mentioned, filters] = [[], new Map()];
  for (const term of terms) {
    const at = term.indexOf('=');
    if (at <= 0) {
      mentioned.push((vm, words) => mentions(vm, words, term.toLowerCase()));
      continue;
    }
    const [key, wanted] = [term.slice(0, at), term.slice(at + 1)];
    if (!LISTS.test(key) && !MAPS.test(key) && !fields(key)) return bad(`no VM has a field ${short(key, 40)}`);
    const check = matcher(key, wanted);
    if (!check) return bad(`${short(wanted.slice(1), 40)} is not a regular expression`);
    filters.set(key, (vm) => values(vm, key).some((value) => isSet(value) && check(shown(value))));
  }
  const tests = [...mentioned, ...filters.values()];
  return { test: (vm, words) => tests.every((test) => test(vm, words)), problem: null };
}

/** Where a VM stands among those that pass: first those whose name has all plain words. */
export function ranking(text) {
  const plain = text.toLowerCase().replaceAll('"', '').split(/\s+/).filter((word) => word && !word.includes('='));
  if (plain.length === 0) return () => 0;
  return ({ alias, hostname }) => {
    const name = `${alias ?? ''} ${hostname ?? ''}`.toLowerCase();
    return Number(!plain.every((word) => name.includes(word)));
  };
}

/** The search with the term of this key replaced by `key=value`, or removed if it is there already. */
export function toggled(text, key, value) {
  const term = key ? `${key}=${value}` : value;
  const terms = text.split(/\s+/).filter(Boolean);
  const others = terms.filter((one) => one !== term && !(key && one.startsWith(`${key}=`)));
  return (terms.includes(term) ? others : [...others, term]).join(' ');
}

/** The memory of a VM in MiB, as vmadm's `ram`. */
export const ram = (vm) => (['kvm', 'bhyve'].includes(vm.brand) ? vm.ram : vm.max_physical_memory);

const bad = (problem) => ({ test: () => false, problem });

function matcher(key, wanted) {
  if (!wanted.startsWith('~')) {
    const exact = /^nics\..*\.mac$/.test(key) ? mac(wanted) : wanted;
    // A uuid may be named by its beginning.
    if (/uuid$/.test(key) && BEGINNING.test(exact)) return (value) => value.startsWith(exact);
    return (value) => value === exact;
  }
  try {
    const expression = new RegExp(wanted.slice(1), 'i');
    return (value) => expression.test(value);
  } catch {
    return null;
  }
}

/** `B2:1E:BA:0:0:2` as `b2:1e:ba:00:00:02`. */
const mac = (text) => text.split(':').map((part) => part.toLowerCase().padStart(2, '0')).join(':');

function values(vm, key) {
  if (key === 'type') return [TYPES[vm.brand] ?? 'OS'];
  if (key === 'ram') return [ram(vm)];
  const [, list, place, name] = LISTS.exec(key) ?? [];
  if (list) {
    const all = vm[list] ?? [];
    return (place === '*' ? all : [all[Number(place)]]).map((one) => one?.[name]);
  }
  const [, map, inner] = MAPS.exec(key) ?? [];
  return [map ? vm[map]?.[inner] : vm[key]];
}

const isSet = (value) => value !== null && value !== undefined;

const shown = (value) => (Array.isArray(value) ? value.join(',') : String(value));

/** An address is found whole, or by whole parts of its beginning: `10.20.0.9` is not `10.20.0.91`. */
const begins = (address, word) => address === word || address.startsWith(/[.:]$/.test(word) ? word : `${word}.`)
  || address.startsWith(`${word}/`);

function mentions(vm, words, word) {
  const names = [vm.alias, vm.hostname, vm.state, vm.brand, ...words];
  if (names.some((text) => text?.toLowerCase().includes(word))) return true;
  if ([vm.uuid, vm.owner_uuid].some((uuid) => uuid?.startsWith(word))) return true;
  const nics = vm.nics ?? [];
  if (nics.some((nic) => nic.mac === word || (word.includes(':') && nic.mac?.startsWith(word)))) return true;
  return nics.some((nic) => [nic.ip, ...(nic.ips ?? [])].some((address) => address && begins(address, word)));
}
