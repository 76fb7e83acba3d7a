// The worker that all tabs of a browser share: see streams.js.

import { Hub, servePort } from "./streams.js";

const hub = new Hub();
onconnect = ({ ports: [port] }) => servePort(hub, port);
