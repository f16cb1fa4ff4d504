/* Work shared by threads: ``work(data)`` runs in all of them at once, and takes its share of the work from ``data``. */
#pragma once

void dsfcnn_share(void (*work)(void *), void *data, long threads);
