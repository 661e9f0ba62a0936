"""Chromium without a window, driven through two pipes, and a lab for it to look at."""

import base64
import json
import os
import subprocess
import time

PATIENCE = 60
FLAGS = "--headless --no-sandbox --disable-gpu --hide-scrollbars --no-first-run --remote-debugging-pipe"


class Browser:
    """Chromium at the other end of two pipes; messages end with NUL."""

    def __init__(self, profile):
        (read_end, self.write), (self.read, write_end) = os.pipe(), os.pipe()

        def arrange():
            # Both copies first, so that neither lands on a descriptor still needed.
            to_browser, from_browser = os.dup(read_end), os.dup(write_end)
            to_browser, from_browser = (
                os.dup2(os.dup2(to_browser, 60), 3),
                os.dup2(os.dup2(from_browser, 61), 4),
            )

        self.process = subprocess.Popen(
            ["chromium", *FLAGS.split(), f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=arrange,
            pass_fds=(3, 4),
            stderr=subprocess.DEVNULL,
        )
        os.close(read_end)
        os.close(write_end)
        # What the browser's console says: of the page, and of answers that are errors.
        self.said, self.refused = [], []
        self.number, self.left, self.session = 0, b"", None
        self.session, self.target = self.tab()

    def tab(self):
        """Opens a tab; what is asked with its session is asked of it."""
        own, self.session = self.session, None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        opened = self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable")
        self.session = own
        return opened, target

    def ask(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.next()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise SystemExit(f"{method}: {answer['error']}")
                return answer["result"]
            if answer.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
                said = answer["params"]
                is_network = said.get("entry", {}).get("source") == "network"
                (self.refused if is_network else self.said).append(json.dumps(said)[:500])

    def next(self):
        while b"\0" not in self.left:
            piece = os.read(self.read, 1 << 20)
            if not piece:
                raise SystemExit("the browser ended")
            self.left += piece
        message, self.left = self.left.split(b"\0", 1)
        return json.loads(message)

    def value(self, script):
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        return answer["result"].get("value")

    def until(self, what, script):
        end = time.monotonic() + PATIENCE
        while not self.value(script):
            if time.monotonic() > end:
                text = self.value("document.title + '\\n' + document.body.innerText")
                raise SystemExit(f"not seen: {what}\n{text}\nthe browser's console has: {self.said}")
            time.sleep(0.05)
        print(f"seen: {what}", flush=True)

    def until_text(self, what, element, *texts):
        """Waits until the element with this id shows all of the texts."""
        shown = f"document.getElementById({json.dumps(element)}).textContent"
        self.until(what, " && ".join(f"{shown}.includes({json.dumps(text)})" for text in texts))

    def key(self, name):
        codes = {"Enter": 13, "ArrowDown": 40, "ArrowUp": 38}
        text = {"text": name} if len(name) == 1 else {"text": "\r"} if name == "Enter" else {}
        code = {"windowsVirtualKeyCode": codes[name]} if name in codes else {}
        self.ask("Input.dispatchKeyEvent", type="keyDown", key=name, **text, **code)
        self.ask("Input.dispatchKeyEvent", type="keyUp", key=name)

    def screen(self, width, height, dark=False, phone=False):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.ask("Emulation.setEmulatedMedia", features=scheme)
        # A flash that is half over keeps the colours of the scheme in which it began.
        self.value("document.getAnimations().forEach((one) => one.finish())")

    def picture(self, path, width, height, dark=False, phone=False):
        self.screen(width, height, dark, phone)
        shot = self.ask("Page.captureScreenshot", format="webp", quality=80)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot))


def many_tabs(browser, page, is_shown, is_quiet):
    """Eight tabs of one page, and ten visits of one of them. A browser gives a host six connections."""
    own, others = browser.session, [browser.tab() for _ in range(7)]
    tabs = [*(session for session, _ in others), own]

    def visit(session, what):
        browser.session = session
        # As in windows beside each other: all are looked at.
        browser.ask("Emulation.setFocusEmulationEnabled", enabled=True)
        browser.ask("Page.navigate", url=page)
        browser.until(what, is_shown)

    for at, session in enumerate(tabs):
        visit(session, f"tab {at + 1}")
    for nth in range(9):
        visit(tabs[0], f"visit {nth + 2}")
    # A program that is asked in vain is an alarm after 5 seconds.
    until = time.monotonic() + 12
    while time.monotonic() < until:
        for at, session in enumerate(tabs):
            browser.session = session
            if not browser.value(is_quiet):
                text = browser.value("document.title + '\\n' + document.getElementById('alarms').innerText")
                raise SystemExit(f"tab {at + 1} of {len(tabs)} is not quiet:\n{text}")
    browser.session = own
    browser.ask("Emulation.setFocusEmulationEnabled", enabled=False)
    for _, target in others:
        browser.ask("Target.closeTarget", targetId=target)
    browser.ask("Target.activateTarget", targetId=browser.target)
    print(f"seen: {len(tabs)} tabs at once, all well", flush=True)


# The text of axe-core, if npm has it.
AXE = []


def audit(browser, where):
    here = os.path.dirname(os.path.realpath(__file__))
    with open(f"{here}/audit.js", encoding="utf-8") as file:
        wrong = browser.value(file.read())
    if wrong != []:
        raise SystemExit(f"not for everyone ({where}):\n{wrong}")
    if AXE:
        browser.value(AXE[0])
        found = "all.violations.map((one) => `${one.id}: ${one.help}: ${one.nodes.slice(0, 3).map((it) => it.html).join(' ')}`)"
        wrong = browser.value(f"axe.run(document, {{ resultTypes: ['violations'] }}).then((all) => {found})")
        if wrong != []:
            raise SystemExit("axe-core finds ({}):\n{}".format(where, "\n".join(map(str, wrong or ["nothing came"]))))


def fetch_axe(work):
    """axe-core by npm, where there is one and it answers."""
    where = f"{work}/axe"
    os.makedirs(where)
    install = ["npm", "install", "--prefix", where, "--no-audit", "--no-fund", "--ignore-scripts", "axe-core@4"]
    try:
        subprocess.run(install, check=True, timeout=120, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with open(f"{where}/node_modules/axe-core/axe.min.js", encoding="utf-8") as file:
            AXE.append(file.read())
        print("axe-core is here")
    except (OSError, subprocess.SubprocessError) as error:
        print(f"skipped: axe-core is not to be had ({type(error).__name__})")


def start_lab(testbed, node, *more):
    """Starts a lab. Returns it and its page: that of the data centre where it has one."""
    lab = subprocess.Popen([testbed, "lab", "--dir", node, *more], stdout=subprocess.PIPE, text=True)
    page = None
    for line in lab.stdout:
        if "page of the data centre" in line:
            page = line.split()[-1]
        # The address stands alone in its line.
        if line.startswith("  http://"):
            return lab, page or line.strip()
    raise SystemExit("the lab ended before it was up")
