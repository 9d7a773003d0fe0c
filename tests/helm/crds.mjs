// Holds objects of other people's kinds against their schemas: a JSON list on standard input, one line for each mistake.

import { text } from "node:stream/consumers";
import process from "node:process";
import { pathToFileURL } from "node:url";

const PACKAGES = {
  "monitoring.coreos.com/v1": "prometheus-operator/monitoring.coreos.com/v1/index.js",
  "cert-manager.io/v1": "cert-manager/cert-manager.io/v1/index.js",
  "gateway.networking.k8s.io/v1": "gateway-api/gateway.networking.k8s.io/v1/index.js",
};
const home = `${process.env.PRESENCE_NODE_MODULES}/@kubernetes-models`;

for (const object of JSON.parse(await text(process.stdin))) {
  const kinds = await import(pathToFileURL(`${home}/${PACKAGES[object.apiVersion]}`));
  try {
    new kinds[object.kind](object).validate();
  } catch (error) {
    console.log(`${object.kind} ${object.metadata.name}: ${error.message}`);
  }
}
