"""Headless Chromium, driven over WebDriver's plain HTTP."""

import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest

DRIVER = shutil.which('chromedriver')
BROWSER = shutil.which('chromium') or shutil.which('google-chrome')
needs_browser = pytest.mark.skipif(
    not (DRIVER and BROWSER), reason='no browser: apt-get install chromium chromium-driver'
)


@pytest.fixture(scope='module')
def browser():
    driver = Driver()
    yield driver
    driver.close()


class Driver:
    """A session of chromedriver."""

    def __init__(self, width=1100, height=900):
        with socket.socket() as free:
            free.bind(('127.0.0.1', 0))
            self._port = free.getsockname()[1]
        self._process = subprocess.Popen(
            [DRIVER, f'--port={self._port}'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        options = {
            'binary': BROWSER,
            'args': [
                '--headless=new',
                '--no-sandbox',
                '--disable-gpu',
                '--hide-scrollbars',
                '--disable-dev-shm-usage',
                f'--window-size={width},{height}',
            ],
        }
        capabilities = {
            'alwaysMatch': {'goog:chromeOptions': options, 'goog:loggingPrefs': {'browser': 'ALL'}}
        }
        try:
            for _ in range(150):
                try:
                    self._call('GET', '/status')
                    break
                except (urllib.error.URLError, ConnectionError):
                    time.sleep(0.2)
            made = self._call('POST', '/session', {'capabilities': capabilities})
        except BaseException:
            self._process.kill()
            raise
        self._session = f'/session/{made["sessionId"]}'

    def _call(self, method, path, body=None):
        request = urllib.request.Request(
            f'http://127.0.0.1:{self._port}{path}',
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={'Content-Type': 'application/json'},
        )
        with urllib.request.urlopen(request, timeout=120) as reply:
            return json.load(reply)['value']

    def call(self, path, body):
        return self._call('POST', self._session + path, body)

    def run(self, script):
        return self.call('/execute/sync', {'script': script, 'args': []})

    def open(self, path):
        self.call('/url', {'url': path.resolve().as_uri()})

    def pointer(self, *actions):
        self.call(
            '/actions',
            {
                'actions': [
                    {
                        'type': 'pointer',
                        'id': 'mouse',
                        'actions': [
                            {
                                'type': 'pointerMove',
                                'x': round(a[0]),
                                'y': round(a[1]),
                                'duration': 20,
                            }
                            if isinstance(a, tuple)
                            else {'type': a, 'button': 0}
                            for a in actions
                        ],
                    }
                ]
            },
        )

    def keys(self, *keys):
        self.call(
            '/actions',
            {
                'actions': [
                    {
                        'type': 'key',
                        'id': 'keys',
                        'actions': [
                            {'type': kind, 'value': key}
                            for key in keys
                            for kind in ('keyDown', 'keyUp')
                        ],
                    }
                ]
            },
        )

    def errors(self):
        log = self.call('/se/log', {'type': 'browser'})
        return [entry['message'] for entry in log if entry['level'] == 'SEVERE']

    def devtools(self, command, **parameters):
        """A command of the Chrome DevTools Protocol."""
        return self.call('/goog/cdp/execute', {'cmd': command, 'params': parameters})

    def screen(self, width, height, dark=False):
        """Shows pages on a screen of this size in pixels, in the dark or light scheme."""
        self.devtools(
            'Emulation.setDeviceMetricsOverride',
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        scheme = {'name': 'prefers-color-scheme', 'value': 'dark' if dark else 'light'}
        self.devtools('Emulation.setEmulatedMedia', features=[scheme])

    def screenshot(self, whole_page=False) -> bytes:
        """A PNG."""
        shot = self.devtools('Page.captureScreenshot', captureBeyondViewport=whole_page)
        return base64.b64decode(shot['data'])

    def close(self):
        try:
            self._call('DELETE', self._session)
        finally:
            self._process.terminate()
            self._process.wait()
